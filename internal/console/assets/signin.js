// Signing in: with a token, or with a new sandbox where the server offers them.

import { html, useEffect, useRef, useState } from './preact.js';
import { FailureView } from './messages.js';
import { focusSoon, useSubmit } from './form.js';
import { offersSandbox, open, openSandbox, session } from './session.js';
import { use } from './observable.js';

// Welcome is the page of the console without a token.
export function Welcome() {
  return html`<section id="welcome" class="welcome card">
    <h1 tabindex="-1">Open a store</h1>
    <p>A token gives access to one store.</p>
    <${SignIn} sandboxNote="A store of your own with some plants. It is removed after an hour." />
    <div class="help"><p class="note">No token? Run this command on the machine of the service:</p>
      <pre class="mono" tabindex="0" role="group" aria-label="Command">plantstore token issue --name me</pre></div>
  </section>`;
}

// SignIn is the form for a token, and the button for a sandbox.
export function SignIn({ sandboxNote }) {
  const { failure: ended } = use(session);
  const field = useRef();
  const keep = useRef();
  const [failure, setFailure] = useState(ended);
  const [creating, setCreating] = useState(false);
  useEffect(() => setFailure(ended), [ended]);
  const opened = () => focusSoon('main h1');
  const form = useSubmit(async () => {
    setFailure(null);
    try {
      await open(field.current.value, keep.current.checked);
      opened();
    } catch (problem) {
      setFailure(problem);
      field.current?.focus();
    }
  });
  const createSandbox = async () => {
    if (creating) return;
    setCreating(true);
    setFailure(null);
    try {
      await openSandbox();
      opened();
    } catch (problem) {
      setFailure(problem);
      setCreating(false);
    }
  };
  return html`<form id="sign-in" class="sign-in" aria-label="Open a store" ...${form}>
    <label class="label" for="token">Token</label>
    <div class="pair"><input id="token" ref=${field} type="password" autocomplete="off" autocapitalize="off" spellcheck=${false}
        placeholder="plant_…" aria-describedby="sign-in-error" />
      <button type="submit" class="primary">Open</button></div>
    <label class="check"><input id="keep" ref=${keep} type="checkbox" />Keep on this device <span class="optional">until you sign out</span></label>
    <div id="sign-in-error" role="alert">${failure && html`<${FailureView} failure=${failure} />`}</div>
    ${offersSandbox && html`<div class="sandbox">
      <button type="button" id="new-sandbox" aria-busy=${creating ? 'true' : null} onClick=${createSandbox}>Try it in a sandbox</button>
      ${sandboxNote && html`<p class="note">${sandboxNote}</p>`}</div>`}
  </form>`;
}
