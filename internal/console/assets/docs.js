// The API reference, displayed by Scalar. Every option that would contact another
// host is off; the content security policy of the page forbids it as well.
'use strict';

const root = new URL('.', location.href).href;
const description = root + 'openapi.json';

// A JavaScript number cannot represent the limits of an int64, and the page would
// display wrong ones. They are removed, since the format int64 implies them.
async function exactFetch(...request) {
  const response = await fetch(...request);
  if (response.url !== description || !response.ok) return response;
  const shown = JSON.parse(await response.text(), (key, value) =>
    (typeof value === 'number' && Math.abs(value) > Number.MAX_SAFE_INTEGER ? undefined : value));
  return new Response(JSON.stringify(shown), { headers: { 'Content-Type': 'application/json' } });
}

Scalar.createApiReference('#reference', {
  url: description,
  customFetch: exactFetch,
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
