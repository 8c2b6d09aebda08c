// The list: which plants are shown, in which order, and how the page gets them.
// Plants are always sorted by id. What is shown is also in the URL after the #, so
// that it survives a reload: q is the search, tag the tag of every plant, rows the size
// of a page, after the id before its first plant, tab the part of a sandbox.

import { Failure, nextCursor, readId } from './api.js';
import { isSlow, may, send, session } from './session.js';
import { changed, countOf, plantCount } from './count.js';
import { isEditing, mayLeave } from './unsaved.js';
import { Patient } from './wait.js';
import { observable } from './observable.js';

export const ROWS = [10, 20, 50, 100];

// A request examines this many plants for a search.
const EXAMINED = 10_000;

// With a token that allows few requests, a search asks after this many whether to go on.
const MOST_REQUESTS = 4;

const LONGEST_SEARCH = 1000; // characters; the service limits the length of a URL

const start = {
  q: '',
  tag: null, // '' is an empty tag
  tab: 'plants',
  rows: 20,
  cursors: [null], // where each page up to this one starts; paging by cursor only goes forward
  plants: [],
  next: null, // cursor of the rest
  first: null, // the id that was searched for, shown before the others
  generation: 0, // changes with each load: rows of an older one are replaced, with their open editors
  fresh: null, // id of the row that has just changed
  loading: false,
  loaded: false,
  searching: false, // the plants are those that a search has found so far
  examined: 0, // plants, by a search
  failure: null,
  away: false, // the failure is temporary: plants are those of the previous load, until the next one succeeds
  waiting: null, // the Failure after which the service asked to wait
  problems: null, // plants that a job could not change: { title, lines }
  changed: false, // the service has plants that the list lacks, and an open editor keeps it from being loaded
};
export const list = observable(start);

// ---- The URL ----

function readLocation() {
  const query = new URLSearchParams(location.hash.slice(1));
  const rows = Number(query.get('rows'));
  const after = readId(query.get('after') ?? '');
  const cursors = history.state?.cursors;
  return {
    q: query.get('q') ?? '',
    tag: query.get('tag'),
    tab: query.get('tab') ?? 'plants',
    rows: ROWS.includes(rows) ? rows : 20,
    cursors: after === null ? [null] : cursors?.at(-1) === after ? cursors : [null, after],
  };
}

function writeLocation(write) {
  const { q, tag, tab, rows, cursors } = list.get();
  const query = new URLSearchParams();
  if (tab !== 'plants') query.set('tab', tab);
  if (tag !== null) query.set('tag', tag);
  if (q) query.set('q', q);
  if (rows !== 20) query.set('rows', rows);
  if (cursors.length > 1) query.set('after', cursors.at(-1));
  const hash = String(query);
  history[write]({ cursors }, '', hash ? `#${hash}` : location.pathname + location.search);
}

window.addEventListener('popstate', async () => {
  const now = list.get();
  const next = readLocation();
  if (!may('read') || ['q', 'tag', 'rows'].every((name) => now[name] === next[name]) && now.cursors.at(-1) === next.cursors.at(-1)) {
    list.update({ tab: next.tab });
  } else if (await mayLeave()) {
    list.update({ ...next, problems: null });
    load();
  } else {
    writeLocation('pushState');
  }
});

// ---- Loading ----

let controller = new AbortController(); // of the newest load; an older one is cancelled
let reconnecting = 0; // timer after a load that failed

// fetchPage loads plants until there are enough. A search can take many requests:
// after each it calls found with the page so far.
async function fetchPage(after, wanted, request, { count = false, examined = 0, found }) {
  const { q, tag } = list.get();
  const plants = [];
  const most = isSlow() ? MOST_REQUESTS : Infinity;
  let next = after;
  for (let requests = 1; plants.length < wanted; requests++) {
    const query = new URLSearchParams({ limit: wanted - plants.length });
    if (next !== null) query.set('after', next);
    if (q) query.set('q', q);
    if (tag !== null) query.set('tag', tag);
    const { data, headers } = await request(`plants?${query}`, count ? { Prefer: 'count=exact' } : {});
    if (count) plantCount.set(countOf(headers));
    count = false;
    plants.push(...data);
    next = nextCursor(headers.get('Link'));
    if (next === null || plants.length >= wanted) break;
    examined += EXAMINED;
    found({ plants, next, examined });
    if (requests === most) break;
  }
  return { plants, next, examined };
}

// fetchFirst returns the plant whose id was typed as search, or null.
async function fetchFirst(request) {
  const { q, tag, cursors } = list.get();
  const id = readId(q);
  if (id === null || cursors.length > 1) return null;
  try {
    const { data } = await request(`plants/${id}`);
    return tag === null || data.tag === tag ? data : null;
  } catch (failure) {
    if (failure.status === 404 || failure.number === '40025') return null;
    throw failure;
  }
}

// run loads something with work(request, progress), which sends requests one after the
// other and calls progress with changes of the list before the last one. If the service
// asks to wait, it goes on afterwards: reading changes nothing.
async function run(work) {
  controller.abort();
  const current = controller = new AbortController();
  const { signal } = current;
  list.update({ loading: true, searching: false, waiting: null });
  const done = { loading: false, searching: false, loaded: true };
  const progress = (part) => {
    if (current === controller) list.update({ failure: null, away: false, ...part, loaded: true, searching: true });
  };
  const patient = new Patient({
    signal,
    when: ({ status, retryAfter }) => (status === 429 || status === 503) && retryAfter > 0,
    waiting: (waiting) => current === controller && list.update({ waiting }),
  });
  try {
    const result = await work((path, headers) => patient.send(() => send('GET', path, { signal, headers })), progress);
    if (current === controller) list.update({ failure: null, away: false, ...result, ...done });
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    if (current === controller && !failure.aborted) {
      const away = failure.status === 0 || failure.status === 429 || failure.status >= 500;
      list.update({ ...done, failure, away, next: null, ...(away ? {} : { plants: [], first: null }) });
      if (away) reconnectLater();
    }
  }
}

export function load() {
  return run(async (request, progress) => {
    const { q, tag, rows, cursors, generation } = list.get();
    if (q.length > LONGEST_SEARCH) {
      return { plants: [], next: null, first: null, failure: new Failure(`The search is too long. Shorten it to ${LONGEST_SEARCH} characters.`) };
    }
    const after = cursors.at(-1);
    const first = await fetchFirst(request);
    const shown = ({ plants, next, examined }) => {
      const others = plants.filter(({ id }) => id !== first?.id);
      return {
        plants: first ? [first, ...others] : others,
        first: first?.id ?? null,
        next,
        examined,
        generation: generation + 1,
        fresh: null,
        changed: false,
      };
    };
    const page = await fetchPage(after, rows, request,
      { count: !q && tag === null && after === null, found: (part) => progress(shown(part)) });
    if (after !== null && page.plants.length === 0 && page.next === null) {
      // The plants of this page and after it are removed, so the page before it is the last.
      list.update({ cursors: cursors.slice(0, -1) });
      writeLocation('replaceState');
      return load();
    }
    if (plantCount.get() === null) changed();
    return shown(page);
  });
}

// stop ends a search. The list keeps what was found.
export function stop() {
  controller.abort();
  list.update({ loading: false, searching: false, waiting: null });
}

// A list that could not be loaded is loaded again once the service responds. GET
// /token does not spend the rate of the token.
function reconnectLater() {
  clearTimeout(reconnecting);
  reconnecting = setTimeout(reconnect, 5000);
}

async function reconnect() {
  const responds = await send('GET', 'token').then(() => true, () => false);
  const { away, loading } = list.get();
  if (!away || loading) return;
  if (!responds) reconnectLater();
  else if (isEditing()) list.update({ failure: null, away: false, changed: true });
  else load();
}

// searchFurther continues a search that has not filled the page.
export function searchFurther() {
  return run(async (request, progress) => {
    const { plants, next, rows, first, examined } = list.get();
    const shown = (page) => ({ ...page, plants: [...plants, ...page.plants.filter(({ id }) => id !== first)] });
    return shown(await fetchPage(next, rows - plants.length, request, { examined, found: (part) => progress(shown(part)) }));
  });
}

export const isFiltered = ({ q, tag }) => q !== '' || tag !== null;

// isUnfinished reports whether a search stopped before the page was full.
export const isUnfinished = (state) => isFiltered(state) && state.next !== null && state.plants.length < state.rows;

export function showTab(tab) {
  if (tab === list.get().tab) return;
  list.update({ tab });
  writeLocation('pushState');
}

// show changes what is shown: q, tag, rows or cursors. It asks first if an edit would
// be lost, and reports whether it went on.
export async function show(change, { replace = false } = {}) {
  if (!(await mayLeave())) return false;
  list.update({ cursors: [null], problems: null, tab: 'plants', ...change });
  writeLocation(replace ? 'replaceState' : 'pushState');
  load();
  return true;
}

// linkTo returns the URL of the list with one plant.
export const linkTo = (id) => {
  const { rows } = list.get();
  return `#${new URLSearchParams({ q: id, ...(rows !== start.rows && { rows }) })}`;
};

export const showAll = () => show({ q: '', tag: null });
export const refresh = () => show({ cursors: list.get().cursors }, { replace: true });
export const nextPage = () => show({ cursors: [...list.get().cursors, list.get().next] });
export const previousPage = () => show({ cursors: list.get().cursors.slice(0, -1) });

// ---- Changes made here ----

// put shows a created or changed plant in the page and reports whether it belongs
// there. Other rows, and edits in them, do not change.
export function put(plant) {
  const { plants, cursors, next, first } = list.get();
  const after = cursors.at(-1);
  const key = BigInt(plant.id);
  const same = plants.findIndex(({ id }) => id === plant.id);
  if (same >= 0) {
    list.update({ plants: plants.with(same, plant), fresh: plant.id });
    return true;
  }
  if (isFiltered(list.get())) return false; // the service decides what matches
  const at = plants.findIndex(({ id }) => id !== first && BigInt(id) > key);
  if ((after !== null && key <= BigInt(after)) || (next !== null && key > BigInt(next))) return false; // of another page
  list.update({ plants: plants.toSpliced(at < 0 ? plants.length : at, 0, plant), fresh: plant.id, failure: null });
  return true;
}

// drop removes plants from the page. A page that is empty then is loaded again, since
// there may be more plants.
export function drop(ids) {
  list.update({ plants: list.get().plants.filter(({ id }) => !ids.has(id)) });
  if (list.get().plants.length > 0) return;
  list.update({ loaded: false });
  load();
}

// A new token starts with an empty list.
session.watch(({ info }) => {
  controller.abort();
  list.set({ ...start, ...readLocation() });
  if (info && may('read')) load();
});
