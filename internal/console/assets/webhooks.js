// The tab Webhooks: the endpoints of the store, their deliveries, and replays.

import { html, useEffect, useRef, useState } from './preact.js';
import { announce, patiently } from './notice.js';
import { marked } from './text.js';
import { isSlow, may, send, session } from './session.js';
import { FailureView } from './messages.js';
import { focusSoon } from './form.js';
import { linkTo } from './list.js';
import { observable, use } from './observable.js';
import { Panel, Tabs, useTab } from './tabs.js';
import { usePolling } from './wait.js';

const PAGE = 20; // deliveries
const STATUSES = ['waiting', 'replaying', 'delivered', 'failed'];
const PERIODS = { 24: '24 hours', 168: '7 days' };
const ERRORS = {
  dns: 'name not found', refused: 'connection refused', timeout: 'timeout', tls: 'TLS error', target: 'address not allowed', connection: 'connection error',
};

// offered is whether the token manages webhooks and the service has them.
export const offered = observable(false);
const endpoints = observable({ all: null, chosen: null, failure: null }); // chosen is an id

async function request(method, path, body) {
  try {
    return (await send(method, path, { body: body && JSON.stringify(body) })).data;
  } catch (failure) {
    if (failure.status === 403 || failure.status === 501) offered.set(false);
    throw failure;
  }
}

const load = () => request('GET', 'webhooks')
  .then((all) => endpoints.update({ all, failure: null }), (failure) => endpoints.update({ failure }));

session.watch(({ info }) => {
  offered.set(info?.scopes.includes('webhooks:manage') ?? false);
  if (offered.get()) load();
});

// StoreTabs are the tabs of a store that is not a sandbox.
export function StoreTabs({ children }) {
  const shown = use(offered);
  const titles = { plants: 'Plants', ...(shown && { webhooks: 'Webhooks' }) };
  const tab = useTab(titles);
  if (!shown) return children;
  return html`<div class="bar"><${Tabs} label="Store" titles=${titles} tab=${tab} /></div>
    <${Panel} name="plants" tab=${tab}>${children}<//>
    <${Panel} name="webhooks" tab=${tab}>${tab === 'webhooks' && html`<${Webhooks} />`}<//>`;
}

export function Webhooks() {
  const { all, chosen: id, failure } = use(endpoints);
  const [round, setRound] = useState(0);
  useEffect(() => { load(); }, [round]);
  const chosen = all?.find((endpoint) => endpoint.id === id) ?? (all?.length === 1 ? all[0] : undefined);
  return html`<section class="card list" aria-labelledby="webhooks-title">
    <div class="tools"><div class="heading"><h2 id="webhooks-title">Webhooks</h2>
      <p class="note">Each new plant is sent to these endpoints. To add, change or remove one, use${' '}
        <code class="mono">plantstore webhook</code> or the <a href="docs#tag/webhooks">API</a>.</p></div>
      <div class="buttons"><button type="button" class="quiet" id="refresh-webhooks" onClick=${() => setRound(round + 1)}>Refresh</button></div></div>
    <div id="webhooks-error" role="alert">${failure && html`<${FailureView} failure=${failure} />`}</div>
    ${all?.length === 0 && html`<div class="empty" id="no-webhooks"><p>No endpoints yet.</p></div>`}
    ${all?.length > 0 && html`<table role="table" id="endpoints" aria-labelledby="webhooks-title">
      <thead role="rowgroup"><tr role="row">${['Endpoint', 'Description', 'State'].map((name) => html`<th role="columnheader" scope="col">${name}</th>`)}</tr></thead>
      <tbody role="rowgroup">${all.map((endpoint) => html`<${Endpoint} key=${endpoint.id} ...${endpoint} chosen=${endpoint === chosen} />`)}</tbody></table>`}
  </section>
  ${chosen && html`<${Deliveries} key=${chosen.id} id=${chosen.id} round=${round} />`}`;
}

function Endpoint({ id, kind, url, description, disabled, disabled_at: since, disabled_reason: reason, chosen }) {
  return html`<tr role="row">
    <td role="cell" class="w-url"><button type="button" class="link" aria-current=${chosen ? 'true' : null} onClick=${() => endpoints.update({ chosen: id })}>
      <bdi>${kind === 'pull' ? 'pull' : marked(url)}</bdi><span class="visually-hidden">, show deliveries</span></button> <span class="note mono">${id}</span></td>
    <td role="cell" class="w-description"><bdi>${marked(description)}</bdi></td>
    <td role="cell" class=${`w-state ${disabled ? 'bad' : ''}`}>${disabled ? html`disabled <span class="note">since ${moment(since, { dateStyle: 'medium', timeStyle: 'short' })}: ${marked(reason)}</span>` : 'enabled'}</td>
  </tr>`;
}

function Deliveries({ id, round }) {
  const state = useRef({ rows: null, end: true, failure: null });
  const [, redraw] = useState(0);
  const [status, setStatus] = useState('');
  const [open, setOpen] = useState(new Set());
  const hours = useRef();
  const shown = useRef(true);
  useEffect(() => () => { shown.current = false; }, []);
  const path = `webhooks/${id}/deliveries`;
  const get = (query) => request('GET', `${path}?${new URLSearchParams(query)}`);

  // Changes of the rows run one after the other. A change in the background does not show its failure.
  const last = useRef(Promise.resolve());
  const change = (work, background = false) => {
    last.current = last.current.then(async () => {
      const attempt = () => work(state.current);
      const part = await (background ? attempt() : patiently(attempt)).then((now) => (background ? now : { ...now, failure: null }),
        (failure) => (background ? {} : { failure }));
      if (!shown.current) return;
      Object.assign(state.current, part);
      redraw((n) => n + 1);
    });
    return last.current;
  };
  const page = async (query) => {
    const rows = await get({ limit: PAGE, ...(status && { status }), ...query });
    return { rows, end: rows.length < PAGE };
  };
  useEffect(() => { change(() => page()); }, [status, round]);
  const more = () => change(async ({ rows }) => {
    const { rows: older, end } = await page({ before: rows.at(-1).id });
    focusSoon(`tr[data-id="${(older[0] ?? rows.at(-1)).id}"] button`);
    return { rows: [...rows, ...older], end };
  });

  // After a replay, rows are read again until none is replaying, at most for two minutes.
  const polls = useRef(0);
  usePolling(() => {
    const running = (row) => row.status === 'replaying';
    if (!state.current.rows?.some(running) || polls.current-- <= 0) return undefined;
    return change(async ({ rows }) => {
      const at = rows.findIndex(running);
      const now = new Map((await get({ limit: 100, ...(at > 0 && { before: rows[at - 1].id }) })).map((row) => [row.id, row]));
      return { rows: rows.map((row) => now.get(row.id) ?? row) };
    }, true);
  }, 1000);
  const watch = () => { polls.current = isSlow() ? 0 : 120; };
  const replay = ({ id: delivery }) => change(async ({ rows }) => {
    const now = await request('POST', `${path}/${delivery}/replay`);
    watch();
    return { rows: rows.map((row) => (row.id === delivery ? now : row)) };
  });
  const replayFailed = () => change(async () => {
    const { replaying } = await request('POST', `webhooks/${id}/replay`, { since: new Date(Date.now() - hours.current.value * 3_600_000).toISOString() });
    watch();
    announce(`Failed deliveries that are replayed: ${Number(replaying).toLocaleString('en')}.`);
  }).then(() => state.current.failure ?? change(() => page()));

  const toggle = (delivery) => setOpen((now) => { const next = new Set(now); if (!next.delete(delivery)) next.add(delivery); return next; });
  const { rows, end, failure } = state.current;
  return html`<section class="card list" aria-labelledby="deliveries-title">
    <div class="tools" id="deliveries-tools"><div class="heading"><h2 id="deliveries-title">Deliveries</h2><p class="note">Newest first.</p></div>
      <div class="choice"><label for="delivery-status">Status</label>
        <select id="delivery-status" onChange=${({ target }) => setStatus(target.value)}>
          <option value="">all</option>${STATUSES.map((name) => html`<option value=${name}>${name}</option>`)}</select></div>
      <div class="choice"><label for="created-in">Created in the last</label>
        <select id="created-in" ref=${hours}>${Object.entries(PERIODS).map(([value, text]) => html`<option value=${value} selected=${value === '168'}>${text}</option>`)}</select>
        <button type="button" id="replay-failed" onClick=${replayFailed}>Replay failed</button></div></div>
    <div id="deliveries-error" role="alert">${failure && html`<${FailureView} failure=${failure} />`}</div>
    ${rows?.length === 0 && html`<div class="empty" id="no-deliveries"><p>No deliveries${status && ' with this status'}.</p></div>`}
    ${rows?.length > 0 && html`<table role="table" id="deliveries" aria-labelledby="deliveries-title">
      <thead role="rowgroup"><tr role="row">${['Created', 'Plant', 'Status', 'Last try'].map((name) => html`<th role="columnheader" scope="col">${name}</th>`)}
        <th role="columnheader" scope="col" class="d-do"><span class="visually-hidden">Actions</span></th></tr></thead>
      <tbody role="rowgroup">${rows.map((row) => html`<${Delivery} key=${row.id} row=${row} open=${open.has(row.id)} toggle=${toggle} replay=${replay} />`)}</tbody></table>`}
    ${!end && html`<div class="rest"><button type="button" id="more-deliveries" onClick=${more}>More</button></div>`}
  </section>`;
}

function Delivery({ row, open, toggle, replay }) {
  const { id, plant, status, created, next, tries } = row;
  const running = status === 'replaying';
  const onClick = (event) => { if (!event.target.closest('button, a') && getSelection().isCollapsed) toggle(id); };
  return html`<tr role="row" class=${`entry${open ? ' open' : ''}`} data-id=${id} onClick=${onClick}>
      <td role="cell" class="d-time"><button type="button" class="disclose" aria-expanded=${String(open)} aria-label=${`${moment(created)}, tries for plant ${plant}`}
        onClick=${() => toggle(id)}>${moment(created)}</button></td>
      <td role="cell" class="d-plant mono">${may('read') ? html`<a href=${linkTo(plant)}>${plant}</a>` : plant}</td>
      <td role="cell" class=${`d-status ${status === 'failed' ? 'bad' : ''}`}>${status}${next && tries.length > 0 && html` <span class="note">next try ${moment(next)}</span>`}</td>
      <td role="cell" class="d-try">${tries.length > 0 ? result(tries.at(-1)) : '–'}${tries.length > 1 && html` <span class="note">${tries.length} tries</span>`}</td>
      <td role="cell" class="d-do"><button type="button" class="quiet" aria-disabled=${String(running)} aria-label=${`Replay the delivery of plant ${plant}`}
        onClick=${() => running || replay(row)}>Replay</button></td>
    </tr>
    ${open && html`<tr role="row" class="json"><td role="cell" colspan="5"><div class="details">
      <h3>Tries</h3>
      ${tries.length > 0 ? html`<ol class="tries">${tries.map((one) => html`<li>${moment(one.time)}: ${result(one)}${one.replay && ', replay'}</li>`)}</ol>` : html`<p class="note">None.</p>`}
      <p class="note">Delivery <span class="mono">${id}</span></p></div></td></tr>`}`;
}

const SHORT = { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' }; // deliveries are kept for days
const moment = (time, format = SHORT) => new Date(time).toLocaleString('en', { ...format, hourCycle: 'h23' });
const result = ({ status, error, ms }) => `${status ? `HTTP ${status}` : ERRORS[error] ?? error}, ${Number(ms).toLocaleString('en')} ms`;
