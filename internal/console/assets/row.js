// A row of the table: a plant, its JSON with copies, and its editor.

import { html, useLayoutEffect, useRef, useState } from './preact.js';
import { FailureView } from './messages.js';
import { Text, hasHidden, marked } from './text.js';
import { copy, curl, pretty, toJSON } from './copy.js';
import { focusSoon, submitOnEnter, useSubmit } from './form.js';
import { may } from './session.js';
import { announce, patiently } from './notice.js';
import { put, refresh, show } from './list.js';
import { read, replace } from './plants.js';
import { removePlants } from './removal.js';
import { mayDiscard, trackEdit } from './unsaved.js';

export const rowOf = (id) => `tr[data-id="${id}"]`;

export function Row({ plant, fresh, selected, select, columns }) {
  const { id } = plant;
  const [open, setOpen] = useState(false);
  const [edited, setEdited] = useState(null); // the version in the editor: { plant, etag }
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState(null);

  // edit loads the current version, so that the person edits what is stored now.
  const edit = async () => {
    if (busy) return;
    setBusy(true);
    setFailure(null);
    try {
      setEdited(await patiently(() => read(id)));
    } catch (problem) {
      setFailure(problem);
    }
    setBusy(false);
  };
  const close = () => { setEdited(null); focusSoon(`${rowOf(id)} .edit`); };

  if (edited) return html`<${Editor} key=${edited.etag} ...${edited} close=${close} reload=${edit} columns=${columns} />`;
  const toggle = (event) => {
    // A click on a control is for the control, and selecting text does not open the row.
    if (!event.target.closest('button, input, label, .failure') && getSelection().isCollapsed) setOpen(!open);
  };
  return html`<tr role="row" data-id=${id} class=${`plant${fresh ? ' fresh' : ''}${open ? ' open' : ''}`} aria-busy=${busy ? 'true' : null} onClick=${toggle}>
      ${may('write') && html`<td role="cell" class="c-pick"><label><input type="checkbox" checked=${selected}
        aria-label=${`Select plant ${id}`} onClick=${(event) => select(id, event)} /></label></td>`}
      <td role="cell" class="c-id"><button type="button" class="disclose mono" aria-expanded=${String(open)} aria-label=${`Plant ${id} as JSON`}
        onClick=${() => setOpen(!open)}>${id}</button></td>
      <td role="cell" class="c-name"><${Text} text=${plant.name} label=${`Name of plant ${id}`} />
        <div role="alert">${failure && html`<${FailureView} failure=${failure}><button type="button" onClick=${refresh}>Refresh the list</button><//>`}</div></td>
      <td role="cell" class="c-tag">${plant.tag === undefined
        ? html`<span class="none"><span aria-hidden="true">–</span><span class="visually-hidden">no tag</span></span>`
        : html`<${Text} text=${plant.tag} label=${`Tag of plant ${id}`} most=${60} wrap=${(content) => html`<button type="button" class="tag"
            title="Show the plants with this tag" onClick=${() => showTag(plant.tag)}>${content}</button>`} />`}</td>
      ${may('write') && html`<td role="cell" class="c-do">
        <button type="button" class="quiet edit" aria-label=${`Edit plant ${id}`} onClick=${edit}>Edit</button>
        <button type="button" class="quiet remove" aria-label=${`Remove plant ${id}`} onClick=${() => removeRow(plant)}>Remove</button>
      </td>`}
    </tr>
    ${open && html`<${Json} plant=${plant} columns=${columns} />`}`;
}

const showTag = async (tag) => { if (await show({ tag })) focusSoon('#tag-filter'); };

// removeRow removes one plant and moves the focus to its neighbour.
async function removeRow(plant) {
  const rows = [...document.querySelectorAll('tr.plant')].map((row) => row.dataset.id);
  const at = rows.indexOf(plant.id);
  const neighbour = rows[at + 1] ?? rows[at - 1];
  if (await removePlants([plant])) focusSoon(`${rowOf(plant.id)} .remove`, `${rowOf(neighbour)} .edit`, '#list-title');
}

function Json({ plant, columns }) {
  return html`<tr role="row" class="json"><td role="cell" colspan=${columns}>
    <pre class="mono" tabindex="0" role="group" aria-label=${`JSON of plant ${plant.id}`}>${pretty(plant)}</pre>
    <div class="choice">
      <button type="button" class="copy-id" onClick=${() => copy(plant.id, 'The id')}>Copy id</button>
      <button type="button" class="copy-json" onClick=${() => copy(toJSON(plant), 'The JSON')}>Copy JSON</button>
      <button type="button" class="copy-curl" onClick=${() => copy(curl(plant), 'The command')}>Copy curl</button>
    </div>
  </td></tr>`;
}

function Editor({ plant, etag, close, reload, columns }) {
  const { id } = plant;
  const name = useDraft(plant.name);
  const tag = useDraft(plant.tag);
  const [failure, setFailure] = useState(null);
  useLayoutEffect(() => {
    name.ref.current.focus();
    return trackEdit(`plant ${id}`, () => name.changed() || tag.changed());
  }, []);
  const form = useSubmit(async () => {
    setFailure(null);
    // Clearing the tag removes it. An unchanged tag is sent back as it was, even if
    // it is empty.
    const now = { id, name: name.value(), tag: tag.changed() && tag.value() === '' ? undefined : tag.value() };
    try {
      await patiently(() => replace(now, etag));
      put(now);
      close();
      announce(`Plant ${id} is saved.`);
    } catch (problem) {
      setFailure(problem);
    }
  });
  const onKeyDown = async (event) => {
    if (event.key !== 'Escape' || event.isComposing) return;
    event.preventDefault(); // it would close the question
    if (await mayDiscard(`plant ${id}`)) close();
  };
  const area = (label, draft, stored = '') => html`<textarea ref=${draft.ref} rows="1" dir="auto" aria-label=${label} autocomplete="off" onKeyDown=${submitOnEnter} />
    ${hasHidden(stored) && html`<span class="note">Stored: <bdi>${marked(stored)}</bdi></span>`}`;
  return html`<tr role="row" data-id=${id} class="opened"><td role="cell" colspan=${columns}>
    <form class="fields" aria-label=${`Edit plant ${id}`} ...${form} onKeyDown=${onKeyDown}>
      <div class="field f-id"><span class="label">Id</span><span class="mono fixed">${id}</span></div>
      <label class="field f-name"><span class="label">Name</span>${area(`Name of plant ${id}`, name, plant.name)}</label>
      <label class="field f-tag"><span class="label">Tag</span>${area(`Tag of plant ${id}`, tag, plant.tag)}</label>
      <div class="field f-do"><button type="submit" class="primary">Save</button><button type="button" class="quiet" onClick=${close}>Cancel</button></div>
      <div class="below" role="alert">${failure && html`<${FailureView} failure=${failure}>${failure.status === 412
        && html`<button type="button" onClick=${reload}>Load the current version</button>`}<//>`}</div>
    </form>
  </td></tr>`;
}

// useDraft is for a text area that edits one text of a plant. The browser changes
// some line breaks in it, so the value of an unchanged draft is the original text.
function useDraft(original) {
  const ref = useRef();
  const shown = useRef('');
  useLayoutEffect(() => {
    ref.current.value = original ?? '';
    shown.current = ref.current.value;
  }, []);
  const changed = () => ref.current !== null && ref.current.value !== shown.current;
  return { ref, changed, value: () => (changed() ? ref.current.value : original) };
}
