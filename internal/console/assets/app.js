// The console: the plants of one store, to look at and to change.

import { html, render } from './preact.js';
import { AddForm } from './create.js';
import { Notice } from './notice.js';
import { PlantList } from './table.js';
import { ImportButton, Transfer } from './transfer.js';
import { Sandbox } from './sandbox.js';
import { StoreTabs } from './webhooks.js';
import { Welcome } from './signin.js';
import { may, session } from './session.js';
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
    ${info.sandbox ? html`<${Sandbox}><${Plants} /><//>` : html`<${StoreTabs}><${Plants} /><//>`}
  </div>`;
}

const Plants = () => html`
  ${may('read') ? html`<${PlantList} />` : may('create') && html`<section class="card alone" aria-labelledby="add-title">
    <div class="tools"><h2 id="add-title">Add a plant</h2><div class="buttons"><${ImportButton} /></div></div>
    <${Transfer} />
    <${AddForm} />
  </section>`}
  <${Limits} />`;

const uses = {
  read: 'the list and the search are',
  create: 'adding plants and the import are',
  write: 'editing and removing are',
};

// Limits says what is missing on the page, and why.
function Limits() {
  const missing = Object.keys(uses).filter((scope) => !may(scope));
  if (missing.length === 0) return null;
  return html`<div id="limits" class="limits">${missing.map((scope) => html`<p key=${scope}>This token does not have the
    scope <code class="mono">plants:${scope}</code>, so ${uses[scope]} not shown.</p>`)}</div>`;
}

const main = document.getElementById('main');
main.replaceChildren();
render(html`<${Console} />`, main);
render(html`<${Notice} />`, document.getElementById('notice'));
showHeader('console').then(() => { if (!session.get().token) focusSoon('#token'); });
