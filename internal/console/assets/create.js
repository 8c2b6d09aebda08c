// The form that adds a plant: the first row of the table, or alone if the token can't
// read plants.

import { html, useLayoutEffect, useRef, useState } from './preact.js';
import { Failure, readId } from './api.js';
import { FailureView } from './messages.js';
import { announce, patiently } from './notice.js';
import { create } from './plants.js';
import { freeId } from './suggest.js';
import { observable, use } from './observable.js';
import { linkTo, put, show } from './list.js';
import { may, session, storage } from './session.js';
import { focusSoon, submitOnEnter, useSubmit } from './form.js';

const DRAFT = 'plantstore.draft';

export const adding = observable(false);

// draft is what is typed: the id, name and tag. A closed form keeps it. If the token
// expires or is revoked, it is kept in the tab for the next token of the same store.
const none = ['', '', ''];
let draft = none;
let store = '';

session.watch(({ info, failure }) => {
  if (info) {
    const kept = JSON.parse(storage('sessionStorage', (s) => s.getItem(DRAFT)) || '{}');
    storage('sessionStorage', (s) => s.removeItem(DRAFT));
    store = info.store;
    draft = kept.store === store ? kept.values : none;
    adding.set(draft !== none);
    return;
  }
  if (failure && draft.some(Boolean)) storage('sessionStorage', (s) => s.setItem(DRAFT, JSON.stringify({ store, values: draft })));
  draft = none;
});

const close = () => { adding.set(false); focusSoon('#add-open'); };

export function AddButton() {
  const open = use(adding);
  return html`<button type="button" id="add-open" class="primary" aria-expanded=${String(open)}
    onClick=${() => (open ? focusSoon('#add-name') : adding.set(true))}>Add<span class="wide"> a plant</span></button>`;
}

export function AddForm() {
  const id = useRef();
  const name = useRef();
  const tag = useRef();
  const suggested = useRef(''); // the id that was filled in
  const search = useRef(null); // for a free id
  const [problem, setProblem] = useState(null); // { failure, explain, field, taken, free }
  const [asked, setAsked] = useState(false); // whether a plant without a name is meant
  const fields = () => [id, name, tag].map(({ current }) => current);

  // keep stores what is typed. An id that was only suggested is no draft.
  const keep = () => {
    const values = fields().map(({ value }) => value);
    if (values[0] === suggested.current) values[0] = '';
    draft = values.some(Boolean) ? values : none;
  };
  const fill = (free) => {
    if (free === null || !id.current || !['', suggested.current].includes(id.current.value)) return;
    id.current.value = suggested.current = free;
    if (document.activeElement === id.current) id.current.select();
  };
  const suggest = (from) => { search.current = freeId(from).then(fill, () => {}); };

  useLayoutEffect(() => {
    fields().forEach((field, i) => { field.value = draft[i]; });
    if (!draft[0]) suggest();
    if (may('read')) (draft[0] ? id : name).current.focus();
  }, []);

  const refuse = (message, field) => {
    setProblem({ failure: new Failure(message), field });
    field.current.focus();
  };
  const form = useSubmit(async () => {
    setProblem(null);
    announce();
    if (id.current.value === '') await search.current;
    const plant = { id: readId(id.current.value), name: name.current.value, tag: tag.current.value || undefined };
    if (id.current.value.trim() === '') return refuse('The id is missing. Type a whole number, such as 42.', id);
    if (plant.id === null) return refuse('The id must be a whole number, such as 42 or -7.', id);
    if (plant.name === '' && !asked) {
      setAsked(true);
      return name.current.focus();
    }
    setAsked(false);
    try {
      await patiently(() => create(plant));
    } catch (failure) {
      return failed(failure, plant);
    }
    for (const field of fields()) field.value = '';
    suggested.current = '';
    draft = none;
    const shown = put(plant);
    if (may('read')) suggest(BigInt(plant.id) + 1n);
    (may('read') ? name : id).current.focus();
    // Creating the same plant twice gets the same response, so the message is true
    // in both cases.
    return announce(`Plant ${plant.id} is in the store.`,
      shown ? {} : { actions: [{ label: 'Show it', act: () => show({ q: plant.id, tag: null }) }] });
  });

  const failed = async (failure, { id: wanted }) => {
    const aboutId = ['40009', '40014', '40025'].includes(failure.number);
    const shown = {
      failure,
      field: aboutId && id,
      explain: failure.status === 0 && 'The plant may have been stored. Creating the same plant again is safe.',
      taken: failure.number === '40009' && may('read') && wanted,
    };
    setProblem(shown);
    if (aboutId) id.current.focus();
    if (!shown.taken) return;
    const free = await freeId(BigInt(wanted) + 1n, true).catch(() => null);
    setProblem((now) => (now === shown ? { ...shown, free } : now));
  };
  const choose = () => {
    id.current.value = problem.free;
    setProblem(null);
    keep();
    name.current.focus();
  };
  const onKeyDown = (event) => { if (event.key === 'Escape' && !event.isComposing && may('read')) close(); };
  const onInput = ({ target }) => {
    keep();
    if (target === name.current) setAsked(false);
    if (target === problem?.field?.current) setProblem(null);
  };

  return html`<form id="add" class="fields" aria-label="Add a plant" ...${form} onKeyDown=${onKeyDown} onInput=${onInput}>
    <div class="field f-id"><label class="label" for="add-id">Id</label>
      <input id="add-id" ref=${id} class="mono" inputmode="text" autocomplete="off" aria-describedby="add-error"
        aria-invalid=${problem?.field === id ? 'true' : null} /></div>
    <div class="field f-name"><label class="label" for="add-name">Name</label>
      <textarea id="add-name" ref=${name} rows="1" autocomplete="off" dir="auto" aria-describedby="add-ask add-hint" onKeyDown=${submitOnEnter} /></div>
    <div class="field f-tag"><label class="label" for="add-tag">Tag <span class="optional">optional</span></label>
      <textarea id="add-tag" ref=${tag} rows="1" autocomplete="off" autocapitalize="off" dir="auto" onKeyDown=${submitOnEnter} /></div>
    <div class="field f-do"><button type="submit" class="primary">Add</button>
      ${may('read') && html`<button type="button" class="quiet" id="add-close" onClick=${close}>Close</button>`}</div>
    <div class="below">
      <p id="add-ask" class="asks" role="status">${asked && 'The name is empty. To add the plant without a name, press Add again.'}</p>
      <div id="add-error" role="alert">${problem && html`<${FailureView} ...${problem}>${problem.taken && html`
        <a class="button" id="show-taken" href=${linkTo(problem.taken)}>Show plant ${problem.taken}</a>
        ${problem.free && html`<button type="button" id="use-free" onClick=${choose}>Use ${problem.free} instead</button>`}`}<//>`}</div>
      <p class="note" id="add-hint"><kbd>Enter</kbd> adds, <kbd>Shift</kbd> + <kbd>Enter</kbd> starts a new line${may('read') && html`, <kbd>Esc</kbd> closes`}.</p>
    </div>
  </form>`;
}
