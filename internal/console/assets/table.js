// The list of plants: its head, its table with selection, and its pages.

import { html, useLayoutEffect, useRef, useState } from './preact.js';
import { FailureView } from './messages.js';
import { AddButton, AddForm, adding } from './create.js';
import { ROWS, isFiltered, isUnfinished, list, load, nextPage, previousPage, refresh, searchFurther, show, showAll, stop } from './list.js';
import { Row } from './row.js';
import { Search } from './search.js';
import { counted, marked, shorten } from './text.js';
import { focusSoon } from './form.js';
import { plantCount } from './count.js';
import { may } from './session.js';
import { removePlants } from './removal.js';
import { ExportButton, ImportButton, Transfer, offerSamples } from './transfer.js';
import { use } from './observable.js';

export function PlantList() {
  const state = use(list);
  const { plants, failure, away, waiting, loaded, changed } = state;
  const unreachable = away && failure?.status === 0;
  const digits = Math.max(5, ...plants.map(({ id }) => id.length));
  return html`<section class="card list" aria-labelledby="list-title" style=${{ '--digits': String(digits) }}>
    <div class="tools">
      <${Title} ...${state} />
      <${Search} />
      <div class="buttons">
        ${may('create') && html`<${ImportButton} />`}<${ExportButton} />
        <button type="button" id="refresh" class=${changed ? 'changed' : 'quiet'} onClick=${refresh}>${changed ? 'Refresh: list changed' : 'Refresh'}</button>
      </div>
      ${may('create') && html`<${AddButton} />`}
    </div>
    <${Filter} ...${state} />
    <${Transfer} />
    <div id="list-error" role="alert">
      ${waiting && html`<${FailureView} failure=${waiting} continues />`}
      ${unreachable && html`<p id="away" class="away">The service cannot be reached. Reconnecting…${
        plants.length > 0 && ' The list shows the plants that were loaded before.'}</p>`}
      ${failure && !unreachable && !waiting && html`<${FailureView} failure=${failure}>
        <button type="button" onClick=${load}>Try again</button>
        ${isFiltered(state) && html`<button type="button" onClick=${showAll}>Show all plants</button>`}<//>`}
      <${Problems} />
    </div>
    <${Table} ...${state} />
    ${loaded && !failure && html`<${Rest} ...${state} />`}
    ${(plants.length > 0 || state.cursors.length > 1) && html`<${Pages} ...${state} />`}
  </section>`;
}

// Title has the number of plants, or of those that a search has found.
function Title(state) {
  const { plants, next, cursors, loaded, first } = state;
  const count = use(plantCount);
  const filtered = isFiltered(state);
  const found = !loaded || cursors.length > 1 ? '' : `${plants.length}${next === null ? '' : '+'}`;
  return html`<div class="heading"><h2 id="list-title" tabindex="-1">${filtered ? 'Plants found' : 'Plants'}</h2>
    <p class="number" id=${filtered ? 'found' : 'count'}>${filtered ? found : count === null ? '–' : count.toLocaleString('en')}</p>
    <p id="list-order" class="note">${first ? `Plant ${first} first, then sorted by id` : 'Sorted by id'}</p></div>`;
}

// Filter shows the tag of every plant in the list, and removes it on a click.
function Filter({ tag }) {
  if (tag === null) return null;
  const remove = async () => { if (await show({ tag: null })) focusSoon('#list-title'); };
  return html`<p class="filter"><span class="note">Tag</span>
    <button type="button" id="tag-filter" class="chip" title="Show plants with any tag" onClick=${remove}>
      ${tag === '' ? html`<span class="none">empty</span>` : html`<bdi>${marked(shorten(tag, 60).text)}</bdi>`}<span class="visually-hidden">, remove this filter</span></button></p>`;
}

function Problems() {
  const { problems } = use(list);
  if (!problems) return null;
  return html`<div class="failure problems">
    <p class="explain">${problems.title}</p>
    <ul>${problems.lines.map((line) => html`<li><bdi>${marked(line)}</bdi></li>`)}</ul>
    <p class="actions">${(problems.actions ?? []).map(({ label, act }) => html`<button type="button" onClick=${act}>${label}</button>`)}
      <button type="button" onClick=${() => list.update({ problems: null })}>Close</button></p>
  </div>`;
}

function Table({ plants, fresh, loading, searching, waiting, generation }) {
  const { selected, select, selectAll, clear } = useSelection(plants, generation);
  const open = use(adding) && may('create');
  const columns = may('write') ? 5 : 3;
  if (plants.length === 0 && !open) return null;
  const chosen = plants.filter(({ id }) => selected.has(id));
  const all = html`<input type="checkbox" id="select-all" aria-label="Select every plant of this page" checked=${plants.length > 0 && chosen.length === plants.length}
    ref=${(box) => { if (box) box.indeterminate = chosen.length > 0 && chosen.length < plants.length; }} onClick=${selectAll} />`;
  return html`
    <div class="selection" role="group" aria-label="Selection" hidden=${chosen.length === 0}>
      <span id="selected" role="status">${chosen.length > 0 && `${counted(chosen.length, 'plant')} selected`}</span>
      <button type="button" id="remove-selected" class="danger" onClick=${() => removePlants(chosen).then(() => focusSoon('#list-title'))}>Remove</button>
      <button type="button" id="clear-selection" class="quiet" onClick=${clear}>Clear selection</button>
    </div>
    <table role="table" aria-labelledby="list-title" id="table" aria-busy=${loading && !searching && !waiting ? 'true' : null}>
      <thead role="rowgroup"><tr role="row">
        ${may('write') && html`<th role="columnheader" scope="col" class="c-pick"><label>${all}</label></th>`}
        <th role="columnheader" scope="col" class="c-id" aria-sort="ascending">Id</th>
        <th role="columnheader" scope="col" class="c-name">Name</th>
        <th role="columnheader" scope="col" class="c-tag">Tag</th>
        ${may('write') && html`<th role="columnheader" scope="col" class="c-do"><span class="visually-hidden">Actions</span></th>`}
      </tr></thead>
      <tbody role="rowgroup" id="rows">
        ${open && html`<tr role="row" class="opened" key="add"><td role="cell" colspan=${columns}><${AddForm} /></td></tr>`}
        ${plants.map((plant) => html`<${Row} key=${`${generation} ${plant.id}`} plant=${plant} fresh=${plant.id === fresh}
        selected=${selected.has(plant.id)} select=${select} columns=${columns} />`)}</tbody>
    </table>`;
}

// useSelection keeps the selected ids. A click with Shift selects the rows since
// the previous click. Another load of the list selects nothing.
function useSelection(plants, generation) {
  const [selected, setSelected] = useState(new Set());
  useLayoutEffect(() => setSelected(new Set()), [generation]);
  const previous = useRef(null);
  const select = (id, { shiftKey, target: { checked } }) => {
    const ids = plants.map((plant) => plant.id);
    const ends = [ids.indexOf(id), shiftKey && previous.current !== null ? ids.indexOf(previous.current) : -1].filter((at) => at >= 0);
    const next = new Set(selected);
    for (const one of ids.slice(Math.min(...ends), Math.max(...ends) + 1)) next[checked ? 'add' : 'delete'](one);
    previous.current = id;
    setSelected(next);
  };
  const selectAll = ({ target: { checked } }) => setSelected(new Set(checked ? plants.map(({ id }) => id) : []));
  return { selected, select, selectAll, clear: () => setSelected(new Set()) };
}

// Rest tells what a page without plants, or with only a part of a search, means.
function Rest(state) {
  const { q, tag, plants, next, loading, searching, changed, examined, cursors } = state;
  const count = use(plantCount);
  if (isUnfinished(state)) {
    const known = count > 0 && cursors.length === 1;
    const reached = known ? `${Math.min(examined, count).toLocaleString('en')} of ${counted(count, 'plant')}` : `up to id ${next}`;
    return html`<div class="rest">
      ${known && html`<progress id="searched" max=${count} value=${Math.min(examined, count)} aria-label="Part of the store that is searched" />`}
      <p class="note">${searching ? 'Searching…' : plants.length ? 'More plants may match.' : 'Nothing found yet.'} Searched ${reached}.</p>
      ${searching ? html`<button type="button" id="stop" onClick=${() => { stop(); focusSoon('#further'); }}>Stop</button>`
    : html`<button type="button" id="further" onClick=${searchFurther}>${loading ? 'Searching…' : 'Continue searching'}</button>`}</div>`;
  }
  if (plants.length > 0) return null;
  if (isFiltered(state)) {
    return html`<div class="empty" id="empty"><p>No plant ${tag !== null && 'with this tag '}${q ? html`matches <bdi class="quoted">${marked(q)}</bdi>` : 'exists'}.</p>
      <button type="button" id="show-all" onClick=${() => showAll().then(() => focusSoon('#search-text'))}>Show all plants</button></div>`;
  }
  if (count === null ? changed : count > 0) {
    return html`<div class="empty" id="empty"><p>The store has plants that are not in this list yet.</p>
      <button type="button" onClick=${refresh}>Show them</button></div>`;
  }
  return html`<div class="empty" id="empty"><p>No plants yet.${may('create') && ' The first one you add appears here.'}</p>
    ${may('create') && html`<button type="button" id="samples" onClick=${offerSamples}>Add ten sample plants</button>`}</div>`;
}

function Pages({ plants, cursors, next, rows, first, failure }) {
  const sorted = plants.filter(({ id }) => id !== first);
  // The disabled attribute would lose the keyboard focus.
  const button = (id, text, possible, act) => html`<button type="button" id=${id} aria-disabled=${String(!possible)}
    onClick=${() => possible && act()}>${text}</button>`;
  return html`<nav class="pages" aria-label="Pages of the list" id="pages">
    ${button('first', 'First', cursors.length > 1, () => show({}))}
    ${button('previous', 'Previous', cursors.length > 1, previousPage)}
    <span id="position" class="note" role="status">${[
      !failure && `Page ${cursors.length}`, // the plants may be those of another page
      sorted.length > 0 && `ids ${sorted[0].id} to ${sorted.at(-1).id}`].filter(Boolean).join(' · ')}</span>
    <label for="limit" class="note">Rows</label>
    <select id="limit" onChange=${(event) => show({ rows: Number(event.target.value) })}>
      ${ROWS.map((n) => html`<option value=${n} selected=${n === rows}>${n}</option>`)}</select>
    ${button('next', 'Next', next !== null, nextPage)}
  </nav>`;
}
