// The API reference, displayed by Scalar. Every option that would contact another
// host is off; the content security policy of the page forbids it as well.

import { session } from './session.js';
import { showHeader } from './header.js';

const root = new URL('.', location.href).href;
const description = root + 'openapi.json';

// A JavaScript number cannot represent the limits of an int64, and the page would
// display wrong ones. They are removed, since the format int64 implies them.
async function exactFetch(...request) {
  const sent = withToken(new Request(...request));
  const response = await fetch(sent);
  if (response.url !== description || !response.ok) return response;
  const shown = JSON.parse(await response.text(), (key, value) =>
    (typeof value === 'number' && Math.abs(value) > Number.MAX_SAFE_INTEGER ? undefined : value));
  return new Response(JSON.stringify(shown), { headers: { 'Content-Type': 'application/json' } });
}

// withToken adds the token of the header to a test request of this server that has
// none. A token typed into the form of a request is used instead.
function withToken(request) {
  const { token } = session.get();
  const given = request.headers.get('Authorization') ?? '';
  const own = new URL(request.url).href.startsWith(root) && request.url !== description;
  if (!token || !own || !/^(bearer)?\s*$/i.test(given)) return request;
  const headers = new Headers(request.headers);
  headers.set('Authorization', `Bearer ${token}`);
  return new Request(request, { headers });
}

const configuration = () => ({
  url: description,
  customFetch: exactFetch,
  authentication: {
    preferredSecurityScheme: 'bearerAuth',
    securitySchemes: { bearerAuth: { token: session.get().token } },
  },
  documentDownloadType: 'direct', // download the original document
  // "Try it" uses the server of this page, whatever public URL the description
  // names.
  servers: [{ url: root.replace(/\/$/, ''), description: 'This server' }],
  proxyUrl: '',
  telemetry: false,
  withDefaultFonts: false,
  persistAuth: false,
  showDeveloperTools: 'never',
  hideClientButton: true,
  agent: { disabled: true },
  mcp: { disabled: true },
  favicon: 'console/icon.svg',
  // The first column of a table does not wrap. A section that a link leads to is
  // not a control and needs no focus ring.
  customCss: 'section[tabindex="-1"]:focus-visible { outline: none !important } .markdown table { table-layout: auto } .markdown :is(th, td):first-child { white-space: nowrap; min-width: max-content }',
});

// Scalar keeps its own elements below the header, which is sticky where there is
// space for it.
const header = document.getElementById('header');
new ResizeObserver(() => {
  const sticky = getComputedStyle(header).position === 'sticky';
  document.documentElement.style.setProperty('--scalar-custom-header-height', sticky ? `${header.offsetHeight}px` : '0px');
}).observe(header);

showHeader('docs').finally(() => {
  const reference = window.Scalar.createApiReference('#reference', configuration());
  session.watch(() => reference.updateConfiguration(configuration()));
});
