// The API reference: Scalar, told to stay at home. Every option that would make
// it speak to another address is off; the page's policy forbids it as well.
'use strict';

const root = new URL('.', location.href).href;
const description = root + 'openapi.json';

// A number of JavaScript can't hold the limits of an int64: the page would show
// others. The format says them already, so the page gets the description without.
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
  documentDownloadType: 'direct', // the bytes of the service, not what the page made of them
  // "Try it" sends to the server that this page came from, whatever public
  // address the description names.
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
  // Numbers in the first column of a table are read whole. A section that an
  // address leads to is no control: it needs no ring around it.
  customCss: 'section[tabindex="-1"]:focus-visible { outline: none !important } .markdown table { table-layout: auto } .markdown :is(th, td):first-child { white-space: nowrap; min-width: max-content }',
});
