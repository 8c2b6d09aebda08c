// The form that adds a plant.

import { html, useLayoutEffect, useRef, useState } from './preact.js';
import { Failure, readId } from './api.js';
import { FailureView } from './messages.js';
import { ImportButton } from './transfer.js';
import { announce, patiently } from './notice.js';
import { create } from './plants.js';
import { put, show } from './list.js';
import { session, storage } from './session.js';
import { submitOnEnter, useSubmit } from './form.js';

const DRAFT = 'plantstore.draft';

export function CreateForm() {
  const id = useRef();
  const name = useRef();
  const tag = useRef();
  const [problem, setProblem] = useState(null); // properties of a FailureView
  const [asked, setAsked] = useState(false); // whether a plant without a name is meant

  // The page loads again after the token has expired or was revoked. What is typed is
  // kept for the next token of the same store.
  useLayoutEffect(() => {
    const fields = [id, name, tag].map(({ current }) => current);
    const { store } = session.get().info;
    const kept = JSON.parse(storage('sessionStorage', (s) => s.getItem(DRAFT)) || '{}');
    storage('sessionStorage', (s) => s.removeItem(DRAFT));
    if (kept.store === store) fields.forEach((field, i) => { field.value = kept.values[i]; });
    return () => {
      const values = fields.map(({ value }) => value);
      if (session.get().failure && values.some(Boolean)) storage('sessionStorage', (s) => s.setItem(DRAFT, JSON.stringify({ store, values })));
    };
  }, []);

  const refuse = (message, field) => {
    setProblem({ failure: new Failure(message) });
    field.current.focus();
  };
  const form = useSubmit(async () => {
    setProblem(null);
    announce();
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
      return setProblem({ failure, explain: failure.status === 0 && 'The plant may have been stored. Creating the same plant again is safe.' });
    }
    for (const field of [id, name, tag]) field.current.value = '';
    id.current.focus();
    // Creating the same plant twice gets the same response, so the message is true
    // in both cases.
    return announce(`Plant ${plant.id} is in the store.`,
      put(plant) ? {} : { actions: [{ label: 'Show it', act: () => show({ q: plant.id }) }] });
  });

  return html`<section class="card" aria-labelledby="add-title">
    <div class="card-head"><h2 id="add-title">Add a plant</h2><${ImportButton} /></div>
    <form id="add" class="fields" ...${form}>
      <div class="field f-id"><label for="add-id">Id</label>
        <input id="add-id" ref=${id} class="mono" inputmode="text" autocomplete="off" aria-describedby="add-error" /></div>
      <div class="field f-name"><label for="add-name">Name</label>
        <textarea id="add-name" ref=${name} rows="1" autocomplete="off" dir="auto" aria-describedby="add-ask add-hint"
          onKeyDown=${submitOnEnter} onInput=${() => setAsked(false)} /></div>
      <div class="field f-tag"><label for="add-tag">Tag <span class="optional">optional</span></label>
        <textarea id="add-tag" ref=${tag} rows="1" autocomplete="off" autocapitalize="off" dir="auto" onKeyDown=${submitOnEnter} /></div>
      <div class="field f-do"><button type="submit" class="primary">Create</button></div>
    </form>
    <p id="add-ask" class="asks" role="status">${asked && 'The name is empty. To create the plant without a name, press Create again.'}</p>
    <p class="note" id="add-hint"><kbd>Enter</kbd> creates, <kbd>Shift</kbd> + <kbd>Enter</kbd> starts a new line.</p>
    <div id="add-error" role="alert">${problem && html`<${FailureView} ...${problem} />`}</div>
  </section>`;
}
