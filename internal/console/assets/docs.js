// The API reference: Scalar, told to stay at home. Every option that would make
// it speak to another address is off; the page's policy forbids it as well.
'use strict';

const root = new URL('.', location.href).href;

Scalar.createApiReference('#reference', {
  url: root + 'openapi.json',
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
  // Numbers in the first column of a table are read whole.
  customCss: '.markdown table { table-layout: auto } .markdown :is(th, td):first-child { white-space: nowrap; min-width: max-content }',
});
