// The session: the token that is open, and what the service says about it. Both
// pages use this module, so a token opened on one is open on the other.
//
// The token is stored for this tab only (sessionStorage), or on this device until
// sign-out (localStorage) if the user says so. It is never in a URL or a cookie.

import { Failure, call } from './api.js';
import { observable } from './observable.js';

const KEY = 'plantstore.token';

// info is the response of GET /token: name, store, scopes, expires, rate, burst and
// sandbox; ends is when it expires by the clock of this device. It is null while it is
// loading or if loading it failed.
export const session = observable({ token: '', info: null, failure: null });

let current = 0; // number of the newest attempt to open a token; older ones are dropped
let used = false; // this page has had a session

// Without storage the token lasts as long as the page.
export function storage(kind, use) {
  try { return use(window[kind]) ?? ''; } catch { return ''; }
}

function store(token, keep) {
  storage('sessionStorage', (s) => (keep ? s.removeItem(KEY) : s.setItem(KEY, token)));
  if (keep) storage('localStorage', (s) => s.setItem(KEY, token));
}

const stored = () => storage('sessionStorage', (s) => s.getItem(KEY)) || storage('localStorage', (s) => s.getItem(KEY));

// open checks a token that the user typed and stores it. It throws a Failure if
// the token is not valid or cannot be checked.
export async function open(typed, keep) {
  const token = typed.trim().replace(/^bearer\s+/i, '');
  if (token === '') throw new Failure('Paste a token first.');
  if (!/^[\x21-\x7e]+$/.test(token)) throw new Failure('This is not a token: it has spaces or special characters. Copy it again.');
  const attempt = ++current;
  const { data, headers } = await call(token, 'GET', 'token');
  if (attempt !== current) return;
  store(token, keep);
  if (used) return reload();
  start(token, data, headers);
}

// offersSandbox is whether the server creates sandboxes for visitors.
export const offersSandbox = document.querySelector('meta[name=sandbox]') !== null;

// openSandbox creates a sandbox and opens its token.
export async function openSandbox() {
  const { data } = await call('', 'POST', 'sandboxes');
  await open(data.token, false);
}

function start(token, info, headers) {
  used = true;
  const ends = Date.now() + Date.parse(info.expires) - (Date.parse(headers.get('Date')) || Date.now());
  session.set({ token, info: { ...info, ends }, failure: null });
}

// reload loads the page again for another token, without the search and the page in the
// URL. So nothing that waits to be sent, such as an undo, reaches another store.
function reload() {
  window.addEventListener('beforeunload', (event) => event.stopImmediatePropagation(), { capture: true }); // asked at sign-out
  location.replace(location.pathname);
  return new Promise(() => {});
}

// resume opens the token that is stored, if there is one.
export async function resume() {
  const token = stored();
  if (!token) return close();
  const attempt = ++current;
  session.set({ token, info: null, failure: null });
  try {
    const { data, headers } = await call(token, 'GET', 'token');
    if (attempt === current) start(token, data, headers);
  } catch (failure) {
    if (attempt !== current) return;
    if (failure.status === 401) close(failure);
    else session.update({ failure });
  }
}

// close signs out.
export function close(failure = null) {
  current++;
  const { token, info } = session.get();
  if (failure && info?.sandbox) failure = new Failure('This sandbox has ended. Its plants and its token are removed.');
  for (const kind of ['sessionStorage', 'localStorage']) {
    storage(kind, (s) => { if (s.getItem(KEY) === token) s.removeItem(KEY); });
  }
  session.set({ token: '', info: null, failure });
}

// A sign-out in another tab also ends this session if it used the token of the device.
window.addEventListener('storage', ({ key, oldValue, newValue }) => {
  if (key === KEY && newValue === null && oldValue === session.get().token) close();
});

// may reports whether the token has a scope: create, read or write.
export const may = (scope) => session.get().info?.scopes.includes(`plants:${scope}`) ?? false;

// isSlow reports whether the token allows so few requests that the user decides about
// each of them.
export function isSlow() {
  const [, n, unit] = /^(\d+)\/(\w)/.exec(session.get().info?.rate ?? '') ?? [];
  return n !== undefined && Number(n) / { s: 1, m: 60, h: 3600 }[unit] < 20;
}

// send sends a request with the token. A response of 401 signs out.
export async function send(method, path, options) {
  const { token } = session.get();
  try {
    return await call(token, method, path, options);
  } catch (failure) {
    if (failure.status === 401 && token === session.get().token) close(failure);
    throw failure;
  }
}
