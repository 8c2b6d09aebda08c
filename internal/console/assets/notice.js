// Short messages at the bottom of the page, and questions that must be answered
// before the page goes on.

import { html, render, useEffect, useLayoutEffect, useRef, useState } from './preact.js';
import { Patient, useCountdown } from './wait.js';
import { observable, use } from './observable.js';

const notice = observable(null);

// undo is the notice about removed plants, with the button that restores them. Other
// notices do not replace it. Its members are those of a notice, and any others.
export const undo = observable(null);
const waiting = observable(null); // the Failure whose time to wait is not over

// patiently sends the requests of one action of the user. While the token has used
// up its rate, it waits and says so.
const patient = new Patient({ when: ({ status }) => status === 429, waiting: (failure) => waiting.set(failure) });
export const patiently = (request) => patient.send(request);

// announce shows a message until another one replaces it, for 8 seconds by
// default. While the pointer or the keyboard is on it, it stays. Without a text it
// removes the message.
export function announce(text, { actions = [], seconds = 8 } = {}) {
  notice.set(text ? { text, actions, seconds } : null);
}

export function Notice() {
  const failure = use(waiting);
  const seconds = useCountdown(failure);
  return html`<div id="status" class="status" role="status">
    ${failure && html`<span id="waiting">This token has used up its requests for now. Continuing ${seconds > 0 ? `in ${seconds} s` : 'now'}.</span>`}
    <${Message} source=${undo} />
    <${Message} source=${notice} />
  </div>`;
}

function Message({ source }) {
  const shown = use(source);
  const [held, hold] = useState(false);
  useLayoutEffect(() => { hold(false); }, [shown]);
  useEffect(() => {
    if (!shown || held) return undefined;
    const timer = setTimeout(() => { if (source.get() === shown) source.set(null); }, 1000 * shown.seconds);
    return () => clearTimeout(timer);
  }, [shown, held]);
  return shown && html`<div class="message" onMouseEnter=${() => hold(true)} onMouseLeave=${() => hold(false)}
      onfocusin=${() => hold(true)} onfocusout=${() => hold(false)}>
    <span>${shown.text}</span>
    ${shown.actions.map(({ label, act }) => html`<button type="button" class="link" onClick=${act}>${label}</button>`)}
  </div>`;
}

// ask shows a question in a dialog. It returns whether the user chose to go on;
// Escape means no.
export function ask(question, { yes, no }) {
  return new Promise((resolve) => {
    const place = document.body.appendChild(document.createElement('div'));
    const answer = (value) => {
      render(null, place);
      place.remove();
      resolve(value);
    };
    render(html`<${Question} ...${{ question, yes, no, answer }} />`, place);
  });
}

function Question({ question, yes, no, answer }) {
  const dialog = useRef();
  const before = useRef(document.activeElement);
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown.showModal();
    return () => {
      shown.close(); // while it is open, nothing else can have the focus
      before.current?.focus?.();
    };
  }, []);
  return html`<dialog ref=${dialog} class="question" aria-labelledby="question" onCancel=${(event) => { event.preventDefault(); answer(false); }}>
    <p id="question">${question}</p>
    <div class="choice">
      <button type="button" class="no" onClick=${() => answer(false)}>${no}</button>
      <button type="button" class="danger" onClick=${() => answer(true)}>${yes}</button>
    </div>
  </dialog>`;
}
