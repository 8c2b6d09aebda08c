// The console: the plants of one store, to look at and to change.

import { html, render } from './preact.js';
import { CreateForm } from './create.js';
import { Notice } from './notice.js';
import { PlantList } from './table.js';
import { Transfer } from './transfer.js';
import { may, session } from './session.js';
import { plantCount } from './count.js';
import { focusSoon } from './form.js';
import { marked } from './text.js';
import { showHeader } from './header.js';
import { use } from './observable.js';

function Console() {
  const { token, info } = use(session);
  if (!token) return html`<${Welcome} />`;
  if (!info) return null;
  return html`<div id="store" key=${token}>
    <h1 class="visually-hidden" id="store-title" tabindex="-1">Plants of the store ${marked(info.store)}</h1>
    <${Limits} scopes=${info.scopes} />
    ${may('read') && html`<${Overview} />`}
    ${may('create') && html`<${CreateForm} />`}
    <${Transfer} />
    ${may('read') && html`<${PlantList} />`}
  </div>`;
}

function Overview() {
  const count = use(plantCount);
  return html`<section class="overview card" aria-label="Overview">
    <h2>Plants</h2><p class="big" id="count">${count === null ? '–' : count.toLocaleString('en')}</p>
  </section>`;
}

function Welcome() {
  return html`<section id="welcome" class="welcome card">
    <h1 tabindex="-1">Open a store</h1>
    <p>A token gives access to one store. Paste yours above to see its plants.</p>
    <p class="note">It is stored in this tab only and deleted when you close it, unless you keep it on this device.</p>
    <p class="note">No token? Run this command on the machine of the service:</p>
    <pre class="mono" tabindex="0" role="group" aria-label="Command">plantstore token issue --name me</pre>
  </section>`;
}

const uses = {
  read: 'the list and the search are',
  create: 'the form to add plants and the import are',
  write: 'editing and removing are',
};

// Limits says what is missing on the page, and why.
function Limits() {
  const missing = Object.keys(uses).filter((scope) => !may(scope));
  if (missing.length === 0) return null;
  return html`<div id="limits" class="card limits">${missing.map((scope) => html`<p key=${scope}>This token does not have the
    scope <code class="mono">plants:${scope}</code>, so ${uses[scope]} not shown.</p>`)}</div>`;
}

const main = document.getElementById('main');
main.replaceChildren();
render(html`<${Console} />`, main);
render(html`<${Notice} />`, document.getElementById('notice'));
showHeader('console').then(() => { if (!session.get().token) focusSoon('#token'); });
