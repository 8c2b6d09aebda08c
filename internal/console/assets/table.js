// The list of plants: its head, its table with selection, and its pages.

import { html, useRef, useState } from './preact.js';
import { FailureView } from './messages.js';
import { ROWS, isUnfinished, list, load, nextPage, previousPage, refresh, searchFurther, show, showAll } from './list.js';
import { Row } from './row.js';
import { Search } from './search.js';
import { counted, marked } from './text.js';
import { focusSoon } from './form.js';
import { plantCount } from './count.js';
import { may } from './session.js';
import { removePlants } from './removal.js';
import { ExportButton, offerSamples } from './transfer.js';
import { use } from './observable.js';

export function PlantList() {
  const state = use(list);
  const { q, plants, failure, away, waiting, loaded, changed, first } = state;
  const unreachable = away && failure?.status === 0;
  return html`<section class="card list" aria-labelledby="list-title">
    <div class="tools">
      <div class="heading"><h2 id="list-title" tabindex="-1">${q ? 'Plants found' : 'All plants'}</h2>
        <p id="list-order" class="note">${first ? `Plant ${first} first, then sorted by id` : 'Sorted by id'}</p></div>
      <${Search} />
      <div class="buttons"><${ExportButton} />
        <button type="button" id="refresh" class=${changed ? 'changed' : ''} onClick=${refresh}>${changed ? 'Refresh: list changed' : 'Refresh'}</button></div>
    </div>
    <div id="list-error" role="alert">
      ${waiting && html`<${FailureView} failure=${waiting} continues />`}
      ${unreachable && html`<p id="away" class="away">The service cannot be reached. Reconnecting…${
        plants.length > 0 && ' The list shows the plants that were loaded before.'}</p>`}
      ${failure && !unreachable && !waiting && html`<${FailureView} failure=${failure}>
        <button type="button" onClick=${load}>Try again</button>
        ${q && html`<button type="button" onClick=${showAll}>Show all plants</button>`}<//>`}
      <${Problems} />
    </div>
    <${Table} key=${state.generation} ...${state} />
    ${loaded && !failure && html`<${Rest} ...${state} />`}
    ${(plants.length > 0 || state.cursors.length > 1) && html`<${Pages} ...${state} />`}
  </section>`;
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

function Table({ plants, fresh, loading }) {
  const { selected, select, selectAll, clear } = useSelection(plants);
  const columns = may('write') ? 5 : 3;
  if (plants.length === 0) return null;
  const chosen = plants.filter(({ id }) => selected.has(id));
  const all = html`<input type="checkbox" id="select-all" aria-label="Select every plant of this page" checked=${chosen.length === plants.length}
    ref=${(box) => { if (box) box.indeterminate = chosen.length > 0 && chosen.length < plants.length; }} onClick=${selectAll} />`;
  return html`
    <div class="selection" role="group" aria-label="Selection" hidden=${chosen.length === 0}>
      <span id="selected" role="status">${chosen.length > 0 && `${counted(chosen.length, 'plant')} selected`}</span>
      <button type="button" id="remove-selected" class="danger" onClick=${() => removePlants(chosen).then(() => focusSoon('#list-title'))}>Remove</button>
      <button type="button" id="clear-selection" class="quiet" onClick=${clear}>Clear selection</button>
    </div>
    <table role="table" aria-labelledby="list-title" id="table" aria-busy=${loading ? 'true' : null}>
      <thead role="rowgroup"><tr role="row">
        ${may('write') && html`<th role="columnheader" scope="col" class="c-pick"><label>${all}</label></th>`}
        <th role="columnheader" scope="col" class="c-id" aria-sort="ascending">Id</th>
        <th role="columnheader" scope="col" class="c-name">Name</th>
        <th role="columnheader" scope="col" class="c-tag">Tag</th>
        ${may('write') && html`<th role="columnheader" scope="col" class="c-do"><span class="visually-hidden">Actions</span></th>`}
      </tr></thead>
      <tbody role="rowgroup" id="rows">${plants.map((plant) => html`<${Row} key=${plant.id} plant=${plant} fresh=${plant.id === fresh}
        selected=${selected.has(plant.id)} select=${select} columns=${columns} />`)}</tbody>
    </table>`;
}

// useSelection keeps the selected ids. A click with Shift selects the rows since
// the previous click.
function useSelection(plants) {
  const [selected, setSelected] = useState(new Set());
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
  const { q, plants, next, loading, changed } = state;
  const count = use(plantCount);
  if (isUnfinished(state)) {
    return html`<div class="rest"><p class="note">${plants.length ? 'More plants may match.' : 'Nothing found yet.'} Searched up to id ${next}.</p>
      <button type="button" id="further" onClick=${searchFurther}>${loading ? 'Searching…' : 'Continue searching'}</button></div>`;
  }
  if (plants.length > 0) return null;
  if (q) {
    return html`<div class="empty" id="empty"><p>No plant matches <bdi class="quoted">${marked(q)}</bdi>.</p>
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
