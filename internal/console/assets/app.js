// The console shows the plants of one store in a table and edits them in place.
// Text from the service is inserted as text only (textContent), and every
// change is sent with the ETag of the version that is displayed.

import { Failure, call, nextCursor, readId, writePlant } from './api.js';
import { Pulse } from './chart.js';

const $ = (id) => document.getElementById(id);

const state = {
  token: '',
  limit: 20,
  cursors: [null], // where each page up to this one starts; paging by cursor only goes forward
  page: 0,
  next: null, // cursor of the next page
  searched: null, // the id of the one plant on display after a search
  plants: new Map(), // id → plant, as displayed
  expected: null, // the number of plants in the store when the page was loaded
  unexpected: 0, // consecutive samples with a different number
  load: 0, // sequence number of the newest load; late responses to older loads are dropped
};

// ---- The token: stored in this tab, never in the URL ----

const TOKEN = 'plantstore.token';
const tokenStorage = {
  read() { try { return sessionStorage.getItem(TOKEN) ?? ''; } catch { return ''; } },
  write(token) { try { sessionStorage.setItem(TOKEN, token); } catch { /* without storage the token lasts as long as the page */ } },
  clear() { try { sessionStorage.removeItem(TOKEN); } catch { /* nothing was stored */ } },
};

const send = (method, path, options) => call(state.token, method, path, options);

function showSignIn(failure) {
  tokenStorage.clear();
  state.token = '';
  state.load++;
  pulse.stop();
  fill($('rows'));
  announce();
  drafts.clear();
  $('store').hidden = $('sign-out').hidden = true;
  $('sign-in').hidden = false;
  $('token').value = '';
  fill($('sign-in-error'), failure && failureView(failure));
  $('token').focus();
}

function showStore() {
  $('sign-in').hidden = true;
  $('store').hidden = $('sign-out').hidden = false;
  $('count').textContent = '–';
  pulse.start();
}

async function signIn(typed) {
  const token = typed.trim().replace(/^bearer\s+/i, '');
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new Failure(token ? 'A token consists of letters, digits and punctuation, without spaces.' : 'Paste a token first.');
  }
  state.token = token;
  Object.assign(state, { cursors: [null], page: 0, searched: null });
  let page, readFailure;
  try {
    page = await fetchPage();
  } catch (failure) {
    // A token without the scope to read may still create plants.
    if (failure.status === 401 || failure.status === 0) throw failure;
    readFailure = failure;
  }
  tokenStorage.write(token);
  showStore();
  if (page) showPage(page);
  else showListFailure(readFailure);
}

// ---- Failures, with the message of the service ----

function failureView(failure, { explain, actions = [] } = {}) {
  const detail = [];
  if (failure.status) detail.push(`Status ${failure.status}`);
  if (failure.number) detail.push(`error ${failure.number}`);
  if (failure.retryAfter) {
    detail.push(/^\d+$/.test(failure.retryAfter) ? `try again in ${failure.retryAfter} s` : `try again after ${failure.retryAfter}`);
  }
  return el('div', { class: 'failure' },
    explain && el('p', { class: 'explain' }, explain),
    el('p', {}, el('bdi', {}, failure.message)),
    detail.length > 0 && el('p', { class: 'detail' }, detail.join(' · ')),
    actions.length > 0 && el('p', { class: 'actions' }, ...actions));
}

// report shows a failure in an element, or the sign-in form if the token is no longer valid.
function report(element, failure, options) {
  if (!(failure instanceof Failure)) throw failure;
  if (failure.status === 401) showSignIn(failure);
  else fill(element, failureView(failure, options));
}

// announce shows a status message. It disappears after 8 seconds unless it has
// a button.
let announceTimer = 0;
function announce(text, ...more) {
  clearTimeout(announceTimer);
  fill($('status'), text && el('span', {}, text), ...more);
  if (!more.length) announceTimer = setTimeout(() => fill($('status')), 8000);
}

// ---- The list ----

async function fetchPage() {
  const query = new URLSearchParams({ limit: state.limit });
  const after = state.cursors[state.page];
  if (after !== null) query.set('after', after);
  const { data, headers } = await send('GET', `plants?${query}`, { headers: { Prefer: 'count=exact' } });
  return { plants: data, next: nextCursor(headers.get('Link')), count: readCount(headers) };
}

function readCount(headers) {
  const count = headers.get('Plants-Count');
  return count === null ? null : Number(count);
}

async function load() {
  const current = ++state.load;
  $('table').setAttribute('aria-busy', 'true');
  try {
    if (state.searched !== null) {
      const { data } = await send('GET', `plants/${state.searched}`);
      if (current === state.load) showPage({ plants: [data], next: null, count: null });
    } else {
      const page = await fetchPage();
      if (current === state.load) showPage(page);
    }
  } catch (failure) {
    if (current === state.load) showListFailure(failure);
  } finally {
    if (current === state.load) $('table').removeAttribute('aria-busy');
  }
}

function showPage({ plants, next, count }) {
  fill($('list-error'));
  drafts.clear();
  state.next = next;
  state.plants = new Map(plants.map((plant) => [plant.id, plant]));
  state.expected = count;
  state.unexpected = 0;
  if (count !== null) showCount(count);
  fill($('rows'), ...plants.map((plant) => rowView(plant)));
  showPosition();
}

function showListFailure(failure) {
  state.next = null;
  state.plants = new Map();
  fill($('rows'));
  showPosition();
  $('empty').hidden = true;
  const id = state.searched;
  const absent = id !== null && failure.status === 404;
  report($('list-error'), failure, {
    actions: absent
      ? [button('Plants after this id', () => goTo({ cursors: [null, id], page: 1 })), button('All plants', () => goTo())]
      : [button('Try again', load)],
  });
}

function showPosition() {
  const { page, next, searched } = state;
  const ids = [...state.plants.keys()];
  $('list-title').textContent = searched !== null ? `Plant ${searched}` : 'All plants';
  $('table').hidden = ids.length === 0;
  $('pages').hidden = searched !== null || (ids.length === 0 && page === 0);
  for (const [name, possible] of [['first', page > 0], ['previous', page > 0], ['next', next !== null]]) {
    // The disabled attribute would lose the keyboard focus.
    $(name).setAttribute('aria-disabled', String(!possible));
  }
  $('position').textContent = `Page ${page + 1}` + (ids.length ? ` · ids ${minus(ids[0])} to ${minus(ids.at(-1))}` : '');
  $('empty').hidden = ids.length > 0;
  fill($('empty'), page > 0
    ? 'No more plants after this point.'
    : 'No plants yet. The first one you add appears here.');
  showChanged(false);
}

function showChanged(changed) {
  $('refresh').classList.toggle('changed', changed);
  $('refresh').textContent = changed ? 'Refresh: list changed' : 'Refresh';
}

function showCount(count) {
  $('count').textContent = count.toLocaleString('en');
  state.expected ??= count;
  // Two samples in a row: one may have been in flight during a change made here.
  state.unexpected = count === state.expected ? 0 : state.unexpected + 1;
  showChanged(state.unexpected > 1);
}

// goTo loads another page unless an edit has unsaved changes.
function goTo({ cursors = [null], page = 0, searched = null } = {}) {
  for (const [row, isDirty] of drafts) {
    if (isDirty()) {
      announce('Save or cancel the open edit first.');
      row.querySelector('textarea').focus();
      return;
    }
  }
  Object.assign(state, { cursors, page, searched });
  if (searched === null) $('search-id').value = '';
  load();
}

// ---- A row: displayed, edited, confirmed for removal ----

const drafts = new Map(); // open editors: row → function that reports unsaved changes

function rowView(plant, { fresh = false } = {}) {
  const { id } = plant;
  const edit = button('Edit', () => openRow(row, id, editorView), { 'aria-label': `Edit plant ${id}`, class: 'quiet edit' });
  const remove = button('Remove', () => openRow(row, id, removalView), { 'aria-label': `Remove plant ${id}`, class: 'quiet remove' });
  const row = el('tr', { role: 'row', 'data-id': id, class: fresh ? 'fresh' : '' },
    el('td', { role: 'cell', class: 'c-id mono' }, minus(id)),
    el('td', { role: 'cell', class: 'c-name' }, ...textView(plant.name, `Name of plant ${id}`), el('div', { role: 'alert' })),
    el('td', { role: 'cell', class: 'c-tag' },
      plant.tag === undefined
        ? el('span', { class: 'none' }, el('span', { 'aria-hidden': 'true' }, '–'), el('span', { class: 'visually-hidden' }, 'no tag'))
        : el('div', { class: 'tag' }, ...textView(plant.tag, `Tag of plant ${id}`, 60))),
    el('td', { role: 'cell', class: 'c-do' }, edit, remove));
  return row;
}

// openRow loads the current version of a plant, so that the person edits or
// removes what is stored now, and replaces the row with the given view.
async function openRow(row, id, view) {
  if (row.ariaBusy === 'true') return;
  row.ariaBusy = 'true';
  try {
    const { data, headers } = await send('GET', `plants/${id}`);
    const opened = view(data, headers.get('ETag'));
    drafts.delete(row);
    row.replaceWith(opened);
    opened.querySelector('textarea, button').focus();
  } catch (failure) {
    report(row.querySelector('[role=alert]'), failure, {
      actions: [button('Refresh the list', () => { drafts.delete(row); goTo({ ...state }); })],
    });
  } finally {
    row.ariaBusy = null;
  }
}

function closeRow(row, plant, { fresh = false, focus = '.edit' } = {}) {
  const closed = rowView(plant, { fresh });
  drafts.delete(row);
  state.plants.set(plant.id, plant);
  row.replaceWith(closed);
  announce();
  closed.querySelector(focus).focus();
}

function openedRow(id, form) {
  return el('tr', { role: 'row', 'data-id': id, class: 'opened' }, el('td', { role: 'cell', colspan: '4' }, form));
}

function conflict(failure, row, id, view) {
  if (failure.status !== 412) return {};
  return {
    explain: 'Someone else changed this plant in the meantime. Your change was not saved.',
    actions: [button('Load the current version', () => openRow(row, id, view))],
  };
}

const ifMatch = (etag) => (etag ? { 'If-Match': etag } : {});

function editorView(plant, etag) {
  const { id } = plant;
  const name = draft(`Name of plant ${id}`, plant.name);
  const tag = draft(`Tag of plant ${id}`, plant.tag);
  const error = el('div', { role: 'alert' });
  const cancel = () => closeRow(row, plant);
  const form = el('form', { class: 'fields', novalidate: '', 'aria-label': `Edit plant ${id}` },
    el('div', { class: 'field f-id' }, el('span', { class: 'label' }, 'Id'), el('span', { class: 'mono fixed' }, minus(id))),
    el('label', { class: 'field f-name' }, 'Name', name.area),
    el('label', { class: 'field f-tag' }, 'Tag', tag.area),
    el('div', { class: 'field f-do' },
      el('button', { type: 'submit', class: 'primary' }, 'Save'), button('Cancel', cancel)),
    error);
  const row = openedRow(id, form);
  drafts.set(row, () => name.changed() || tag.changed());
  form.addEventListener('keydown', (event) => { if (event.key === 'Escape') cancel(); });
  onSubmit(form, async () => {
    fill(error);
    // Clearing the tag removes it. An unchanged tag is sent back as it was,
    // even if it is empty.
    const now = { id, name: name.value(), tag: tag.changed() && tag.value() === '' ? undefined : tag.value() };
    try {
      await send('PUT', `plants/${id}`, { body: writePlant({ name: now.name, tag: now.tag }), headers: ifMatch(etag) });
      closeRow(row, now, { fresh: true });
      announce(`Plant ${minus(id)} is saved.`);
    } catch (failure) {
      report(error, failure, conflict(failure, row, id, editorView));
    }
  });
  return row;
}

function removalView(plant, etag) {
  const { id } = plant;
  const error = el('div', { role: 'alert' });
  const keep = () => closeRow(row, plant, { focus: '.remove' });
  const form = el('form', { class: 'removal', 'aria-label': `Remove plant ${id}` },
    el('p', {}, 'Remove plant ', el('span', { class: 'mono' }, minus(id)), ', ', el('bdi', { class: 'quoted' }, shorten(plant.name, 80).text || 'which has no name'), '?'),
    el('div', { class: 'choice' },
      el('button', { type: 'submit', class: 'danger' }, 'Remove'), button('Keep', keep)),
    error);
  const row = openedRow(id, form);
  form.addEventListener('keydown', (event) => { if (event.key === 'Escape') keep(); });
  onSubmit(form, async () => {
    fill(error);
    try {
      await send('DELETE', `plants/${id}`, { headers: ifMatch(etag) });
      const neighbour = row.nextElementSibling ?? row.previousElementSibling;
      row.remove();
      state.plants.delete(id);
      if (state.expected !== null) state.expected--;
      showPosition();
      (neighbour?.querySelector('textarea, button') ?? $('list-title')).focus();
      announce(`Plant ${minus(id)} is removed.`);
    } catch (failure) {
      report(error, failure, conflict(failure, row, id, removalView));
    }
  });
  return row;
}

// draft is a text area that edits one text of a plant. The browser changes some
// line breaks in it, so the value of an unchanged draft is the original text.
function draft(label, original) {
  const area = el('textarea', { rows: '1', dir: 'auto', 'aria-label': label, autocomplete: 'off' });
  area.value = original ?? '';
  const shown = area.value;
  submitOnEnter(area);
  const changed = () => area.value !== shown;
  return { area, changed, value: () => (changed() ? area.value : original) };
}

// ---- Creating ----

async function create() {
  fill($('add-error'));
  announce();
  const id = readId($('add-id').value);
  if (id === null) {
    fill($('add-error'), failureView(new Failure('The id is a whole number, such as 42 or \u22127.')));
    $('add-id').focus();
    return;
  }
  const plant = { id, name: $('add-name').value, tag: $('add-tag').value || undefined };
  try {
    await send('POST', 'plants', { body: writePlant(plant) });
  } catch (failure) {
    report($('add-error'), failure, failure.status === 0
      ? { explain: 'The plant may have been stored. Creating the same plant again is safe.' }
      : {});
    return;
  }
  for (const name of ['add-id', 'add-name', 'add-tag']) $(name).value = '';
  $('add-id').focus();
  if (state.expected !== null && !state.plants.has(id)) state.expected++;
  // Creating the same plant twice gets the same response, so the message is
  // true in both cases.
  if (insertRow(plant)) announce(`Plant ${minus(id)} is in the store.`);
  else announce(`Plant ${minus(id)} is in the store.`, button('Show it', () => { $('search-id').value = id; goTo({ searched: id }); }, { class: 'link' }));
}

// insertRow adds a plant to the displayed page and reports whether it belongs
// there. Other rows, and edits in them, are not changed.
function insertRow(plant) {
  if (state.searched !== null && state.searched !== plant.id) return false;
  const rows = [...$('rows').children];
  const key = BigInt(plant.id);
  const at = rows.findIndex((row) => BigInt(row.dataset.id) >= key);
  const fresh = rowView(plant, { fresh: true });
  if (at >= 0 && rows[at].dataset.id === plant.id) {
    if (!drafts.has(rows[at])) rows[at].replaceWith(fresh);
    return true;
  }
  const before = at < 0 ? rows.length : at;
  if (state.searched === null && ((before === 0 && state.page > 0) || (before === rows.length && state.next !== null))) return false;
  $('rows').insertBefore(fresh, rows[at] ?? null);
  fill($('list-error'));
  const entries = [...state.plants];
  entries.splice(before, 0, [plant.id, plant]);
  state.plants = new Map(entries);
  showPosition();
  return true;
}

// ---- Text of any kind and length ----

const LINES = 4;

// textView displays a text unchanged, isolated from the writing direction of its
// surroundings. A long text is shortened.
function textView(text, label, most = 240) {
  if (text === '') return [el('span', { class: 'none' }, 'empty')];
  if (/^[\s\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$/u.test(text)) {
    return [el('span', { class: 'none' }, `invisible, ${counted(text.length)}`)];
  }
  const short = shorten(text, most);
  const shown = el('bdi', { class: 'text' }, short.text);
  if (!short.cut) return [shown];
  const box = el('div', { class: 'long' }, shown);
  const more = button(`Show all ${counted(text.length)}`, () => {
    const open = more.getAttribute('aria-expanded') !== 'true';
    more.setAttribute('aria-expanded', String(open));
    more.textContent = open ? 'Show less' : `Show all ${counted(text.length)}`;
    shown.textContent = open ? text : short.text;
    // A scrolling box must be reachable by keyboard.
    for (const [key, value] of [['tabindex', '0'], ['role', 'group'], ['aria-label', label]]) {
      if (open) box.setAttribute(key, value);
      else box.removeAttribute(key);
    }
  }, { class: 'link', 'aria-expanded': 'false' });
  return [box, more];
}

function shorten(text, most) {
  let end = Math.min(text.length, most);
  for (let i = 0, lines = 1; i < end; i++) {
    if (text[i] === '\n' && ++lines > LINES) end = i;
  }
  if (end === text.length) return { text, cut: false };
  if (/[\ud800-\udbff]/.test(text[end - 1])) end--; // keep surrogate pairs together
  return { text: text.slice(0, end) + '…', cut: true };
}

const counted = (n) => `${n.toLocaleString('en')} character${n === 1 ? '' : 's'}`;
const minus = (id) => id.replace('-', '\u2212');

// ---- Building elements ----

function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  fill(node, ...children);
  return node;
}

function fill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== undefined && child !== false && child !== null));
}

function button(text, onClick, attributes = {}) {
  const node = el('button', { type: 'button', ...attributes }, text);
  node.addEventListener('click', onClick);
  return node;
}

// onSubmit runs one submission at a time. Disabling the button meanwhile would
// lose the keyboard focus.
function onSubmit(form, submit) {
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (form.ariaBusy === 'true') return;
    form.ariaBusy = 'true';
    try {
      await submit();
    } finally {
      form.ariaBusy = null;
    }
  });
}

function submitOnEnter(area) {
  area.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      area.form.requestSubmit();
    }
  });
}

// ---- Start ----

const pulse = new Pulse({
  svg: $('chart'),
  rate: $('rate'),
  note: $('chart-note'),
  onCount: showCount,
  async sample() {
    try {
      const { headers } = await send('GET', 'plants?limit=1', { headers: { Prefer: 'count=exact' } });
      return readCount(headers);
    } catch (failure) {
      if (failure.status === 401) showSignIn(failure);
      throw failure;
    }
  },
});

onSubmit($('sign-in-form'), async () => {
  fill($('sign-in-error'));
  try {
    await signIn($('token').value);
    $('token').value = '';
    $('store-title').focus();
  } catch (failure) {
    report($('sign-in-error'), failure);
    $('token').focus();
  }
});
onSubmit($('add'), create);
submitOnEnter($('add-name'));
submitOnEnter($('add-tag'));
onSubmit($('search'), async () => {
  const typed = $('search-id').value;
  if (typed.trim() === '') return goTo();
  const id = readId(typed);
  if (id === null) fill($('list-error'), failureView(new Failure('An id is a whole number, such as 42 or \u22127.')));
  else goTo({ searched: id });
});
$('search-id').addEventListener('input', () => {
  if ($('search-id').value !== '') return;
  if (state.searched !== null) goTo();
  else fill($('list-error'));
});
const onPage = (name, action) => $(name).addEventListener('click', () => { if ($(name).ariaDisabled !== 'true') action(); });
onPage('first', () => goTo());
onPage('previous', () => goTo({ cursors: state.cursors.slice(0, -1), page: state.page - 1 }));
onPage('next', () => goTo({ cursors: [...state.cursors, state.next], page: state.page + 1 }));
$('refresh').addEventListener('click', () => goTo({ ...state }));
$('limit').addEventListener('change', () => { state.limit = Number($('limit').value); goTo(); });
$('sign-out').addEventListener('click', () => showSignIn());

state.limit = Number($('limit').value);
const saved = tokenStorage.read();
if (saved) {
  state.token = saved;
  showStore();
  load();
} else {
  $('sign-in').hidden = false;
  $('token').focus();
}
