// The header of both pages: the product, the store and the token that are open, and
// the links. On the API reference it also has the form to sign in.

import { html, render, useEffect, useState } from './preact.js';
import { close, resume, send, session } from './session.js';
import { focusSoon } from './form.js';
import { FailureView } from './messages.js';
import { SignIn } from './signin.js';
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
    ${token && failure && html`<div class="notice" role="alert"><${FailureView} failure=${failure}>
      <button type="button" onClick=${resume}>Try again</button><//></div>`}
    ${!token && page === 'docs' && html`<${SignIn} />`}`;
}

async function signOut() {
  if (!(await mayLeave())) return;
  close();
  focusSoon('#token');
}

// Token shows whose data the page shows, and what the token allows.
function Token({ store, name, scopes, expires, rate, sandbox, ends }) {
  const facts = [scopes.map((scope) => scope.replace(/^plants:/, '')).join(', ') || 'no scopes'];
  if (rate) facts.push(rateInWords(rate));
  if (expires && !sandbox) facts.push(`expires ${new Date(expires).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short' })}`);
  return html`<dl id="session" class="session">
    <div><dt>Store</dt> <dd id="session-store" title=${store}><bdi>${marked(store)}</bdi></dd></div>
    ${sandbox ? html`<div><dt class="visually-hidden">Time left</dt> <dd><${TimeLeft} ends=${ends} /></dd></div>`
    : html`<div><dt>Token</dt> <dd id="session-token"><bdi>${marked(name)}</bdi></dd></div>`}
    <div class="facts"><dt class="visually-hidden">It allows</dt> <dd id="session-facts">${facts.join(' · ')}</dd></div>
  </dl>`;
}

// TimeLeft counts down to the end of a sandbox, and then asks the service whether it
// has ended: a response of 401 signs out.
function TimeLeft({ ends }) {
  const remaining = () => Math.max(0, Math.ceil((ends - Date.now()) / 1000));
  const [seconds, setSeconds] = useState(remaining());
  const over = seconds === 0;
  useEffect(() => {
    const timer = setInterval(() => setSeconds(remaining()), 1000);
    return () => clearInterval(timer);
  }, [ends]);
  useEffect(() => {
    if (!over) return undefined;
    const check = () => send('GET', 'token').catch(() => {});
    check();
    const timer = setInterval(check, 5000);
    return () => clearInterval(timer);
  }, [over]);
  const text = over ? 'The sandbox has ended' : seconds < 100 ? `${seconds} s left` : `${Math.round(seconds / 60)} min left`;
  return html`<span id="time-left" role="timer" class=${seconds < 300 ? 'soon' : ''}>${text}</span>`;
}

function rateInWords(rate) {
  const [, n, unit] = /^(\d+)\/(\w)/.exec(rate) ?? [];
  const units = { s: 'second', m: 'minute', h: 'hour' };
  return units[unit] ? `${Number(n).toLocaleString('en')} request${n === '1' ? '' : 's'} a ${units[unit]}` : rate;
}

// showHeader renders the header and opens the stored token.
export function showHeader(page) {
  const place = document.getElementById('header');
  place.replaceChildren();
  render(html`<${Header} page=${page} />`, place);
  return resume();
}
