// The header of both pages: the product, the store and the token that are open,
// the field for a token, and the links.

import { html, render, useEffect, useRef, useState } from './preact.js';
import { close, open, resume, session } from './session.js';
import { focusSoon, useSubmit } from './form.js';
import { FailureView } from './messages.js';
import { marked } from './text.js';
import { mayLeave } from './unsaved.js';
import { use } from './observable.js';

export function Header({ page }) {
  const { token, info, failure } = use(session);
  const link = (name, href, text) => html`<a href=${href} aria-current=${page === name ? 'page' : null}>${text}</a>`;
  return html`
    <a class="brand" href="./"><img src="console/icon.svg" alt="" width="32" height="32" /><span>Plant Store</span></a>
    ${info && html`<${Token} ...${info} />`}
    <nav aria-label="Pages">
      ${link('console', './', 'Plants')}
      ${link('docs', 'docs', html`API<span class="wide"> reference</span>`)}
      ${token && html`<button type="button" class="quiet" id="sign-out" onClick=${signOut}>Sign out</button>`}
    </nav>
    ${token ? failure && html`<div class="notice" role="alert"><${FailureView} failure=${failure}>
      <button type="button" onClick=${resume}>Try again</button><//></div>` : html`<${TokenField} failure=${failure} />`}`;
}

async function signOut() {
  if (!(await mayLeave())) return;
  close();
  focusSoon('#token');
}

// Token shows whose data the page shows, and what the token allows.
function Token({ store, name, scopes, expires, rate }) {
  const facts = [scopes.map((scope) => scope.replace(/^plants:/, '')).join(', ') || 'no scopes'];
  if (rate) facts.push(rateInWords(rate));
  if (expires) facts.push(`expires ${new Date(expires).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short' })}`);
  return html`<dl id="session" class="session">
    <div><dt>Store</dt> <dd id="session-store"><bdi>${marked(store)}</bdi></dd></div>
    <div><dt>Token</dt> <dd id="session-token"><bdi>${marked(name)}</bdi></dd></div>
    <div class="facts"><dt class="visually-hidden">It allows</dt> <dd id="session-facts">${facts.join(' · ')}</dd></div>
  </dl>`;
}

function rateInWords(rate) {
  const [, n, unit] = /^(\d+)\/(\w)/.exec(rate) ?? [];
  const units = { s: 'second', m: 'minute', h: 'hour' };
  return units[unit] ? `${Number(n).toLocaleString('en')} request${n === '1' ? '' : 's'} a ${units[unit]}` : rate;
}

function TokenField({ failure: ended }) {
  const field = useRef();
  const keep = useRef();
  const [failure, setFailure] = useState(ended);
  useEffect(() => setFailure(ended), [ended]);
  const form = useSubmit(async () => {
    setFailure(null);
    try {
      await open(field.current.value, keep.current.checked);
      focusSoon('main h1');
    } catch (problem) {
      setFailure(problem);
      field.current?.focus();
    }
  });
  return html`<form id="sign-in" class="sign-in" aria-label="Open a store" ...${form}>
    <label for="token">Token</label>
    <input id="token" ref=${field} type="password" autocomplete="off" autocapitalize="off" spellcheck=${false}
      placeholder="plant_…" aria-describedby="sign-in-error" />
    <button type="submit" class="primary">Open</button>
    <label class="check"><input id="keep" ref=${keep} type="checkbox" />Keep on this device</label>
    <div id="sign-in-error" role="alert">${failure && html`<${FailureView} failure=${failure} />`}</div>
  </form>`;
}

// showHeader renders the header and opens the stored token.
export function showHeader(page) {
  const place = document.getElementById('header');
  place.replaceChildren();
  render(html`<${Header} page=${page} />`, place);
  return resume();
}
