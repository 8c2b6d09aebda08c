// The tab Requests: what the clients of a sandbox have sent, as it happens.

import { html, useEffect, useRef, useState } from './preact.js';
import { FailureView } from './messages.js';
import { marked } from './text.js';
import { sandboxed } from './rules.js';
import { usePolling } from './wait.js';

const INTERVAL = 1000; // milliseconds
const FEW = 20; // entries of each poll
const PAGE = 200; // entries where a poll has missed some, and of an older page

const load = async (limit, before) => {
  const query = new URLSearchParams({ limit, ...(before && { before }) });
  return (await sandboxed('GET', `requests?${query}`)).map((entry) => ({ ...entry, number: Number(entry.number) }));
};

// newer returns the entries, with newer ones before them. Where the journal was
// emptied, it returns only its entries.
async function newer(entries) {
  let recent = await load(FEW);
  const newest = entries[0]?.number ?? 0;
  if (recent.length === 0 || recent[0].number < newest) return recent;
  if (recent.length === FEW && recent.at(-1).number > newest + 1) recent = await load(PAGE);
  const oldest = recent.at(-1)?.number;
  return oldest > newest + 1 ? recent : [...recent, ...entries.filter(({ number }) => number < oldest)];
}

export function Requests() {
  const entries = useRef([]);
  const [, redraw] = useState(0);
  const [loaded, setLoaded] = useState(false);
  const [paused, pause] = useState(false);
  const [failure, setFailure] = useState(null);
  const [open, setOpen] = useState(new Set());
  const [end, setEnd] = useState(false); // whether the oldest entry is shown
  const shown = useRef(true);
  useEffect(() => () => { shown.current = false; }, []);

  // Changes of the entries happen one after the other.
  const last = useRef(Promise.resolve());
  const change = (work) => {
    last.current = last.current.then(async () => {
      try {
        const now = await work(entries.current);
        if (!shown.current) return;
        const changed = now[0]?.number !== entries.current[0]?.number || now.length !== entries.current.length;
        entries.current = now;
        if (changed) redraw((n) => n + 1);
        setLoaded(true);
        setFailure(null);
      } catch (problem) {
        if (shown.current) setFailure(problem);
      }
    });
    return last.current;
  };
  usePolling(() => (paused ? undefined : change(newer)), INTERVAL, [paused]);

  const older = () => change(async (now) => {
    const more = await load(PAGE, now.at(-1).number);
    setEnd(more.length < PAGE);
    return [...now, ...more];
  });
  const clear = () => change(async () => {
    await sandboxed('DELETE', 'requests');
    setEnd(false);
    return [];
  });
  const toggle = (number) => setOpen((now) => { const next = new Set(now); if (!next.delete(number)) next.add(number); return next; });
  const all = entries.current;
  return html`<section class="card list" aria-labelledby="requests-title">
    <div class="tools"><div class="heading"><h2 id="requests-title">Requests</h2>
      <p class="note">${paused ? 'Paused.' : 'Live, newest first.'} The console's own requests for plants are among them.</p></div>
      <div class="buttons"><button type="button" id="pause" aria-pressed=${String(paused)} onClick=${() => pause(!paused)}>${paused ? 'Continue' : 'Pause'}</button>
        <button type="button" id="clear-requests" onClick=${clear}>Clear</button></div></div>
    <div id="requests-error" role="alert">${failure && html`<${FailureView} failure=${failure} continues=${failure.retryAfter > 0} />`}</div>
    ${loaded && all.length === 0 && html`<div class="empty" id="no-requests"><p>No requests yet. Send one with the token of this sandbox, and it appears here.</p></div>`}
    ${all.length > 0 && html`<table role="table" id="requests" aria-labelledby="requests-title">
      <thead role="rowgroup"><tr role="row">${['Time', 'Request', 'Status', 'Fault'].map((name) => html`<th role="columnheader" scope="col" class=${`r-${name.toLowerCase()}`}>${name}</th>`)}</tr></thead>
      <tbody role="rowgroup">${all.map((entry) => html`<${Entry} key=${entry.number} entry=${entry} open=${open.has(entry.number)} toggle=${toggle} />`)}</tbody></table>`}
    ${all.length >= FEW && !end && html`<div class="rest"><button type="button" id="older" onClick=${older}>Show older requests</button></div>`}
  </section>`;
}

function Entry({ entry, open, toggle }) {
  const { number, time, method, path, query, status, error, fault } = entry;
  const at = new Date(time);
  const clock = `${at.toLocaleTimeString('en', { hour12: false })}.${String(at.getMilliseconds()).padStart(3, '0')}`;
  const closed = status === '0';
  const onClick = (event) => { if (!event.target.closest('button') && getSelection().isCollapsed) toggle(number); };
  return html`<tr role="row" class=${`entry${open ? ' open' : ''}`} data-number=${number} onClick=${onClick}>
      <td role="cell" class="r-time"><button type="button" class="disclose mono" aria-expanded=${String(open)} aria-label=${`${clock}, details of ${method} ${path}`}
        onClick=${() => toggle(number)}>${clock}</button></td>
      <td role="cell" class="r-request mono"><b>${method}</b> <bdi>${marked(path)}${query && html`<span class="query">?${marked(query)}</span>`}</bdi></td>
      <td role="cell" class=${`r-status ${closed || status >= 400 ? 'bad' : ''}`}>${closed ? 'no response' : status}${error && html`${' '}<span class="note">${error}</span>`}</td>
      <td role="cell" class="r-fault">${fault && html`<span class="chip-like">${marked(fault)}</span>`}</td>
    </tr>
    ${open && html`<tr role="row" class="json"><td role="cell" colspan="4"><${Details} ...${entry} /></td></tr>`}`;
}

function Details({ id, headers, body, encoding, truncated }) {
  const lines = Object.entries(headers).flatMap(([name, values]) => values.map((value) => `${name}: ${value}`));
  return html`<div class="details">
    <h3>Headers</h3>
    <pre class="mono" tabindex="0" role="group" aria-label="Headers">${marked(lines.join('\n'))}</pre>
    <h3>Body${encoding === 'base64' && html` <span class="note">not UTF-8, so it is in base64</span>`}${truncated && html` <span class="note">the first 8 KiB</span>`}</h3>
    ${body ? html`<pre class="mono" tabindex="0" role="group" aria-label="Body">${marked(body)}</pre>` : html`<p class="note">None.</p>`}
    <p class="note">Request id <span class="mono">${id}</span></p>
  </div>`;
}
