// The tab Faults: switches for the common faults, and the rules of the sandbox.

import { html, useRef, useState } from './preact.js';
import { FailureView } from './messages.js';
import { active, changeRules, effect, operation, rules } from './rules.js';
import { focusSoon } from './form.js';
import { use } from './observable.js';

const FAULTS = [
  ['503', 'Respond with 503', 'Nothing is stored.', { code: 503 }],
  ['500', 'Respond with 500', 'Nothing is stored.', { code: 500 }],
  ['429', 'Respond with 429', 'Nothing is stored. The response says when to try again.', { code: 429 }],
  ['stored-503', 'Store, then respond with 503', 'The client cannot know whether the change was stored.', { code: 503, when: 'after' }],
  ['delay', 'Wait 2 s', 'Then the request is executed.', { delay: 2000 }],
  ['drop', 'Close the connection', 'Nothing is stored, and there is no response.', { drop: true }],
  ['stored-drop', 'Store, then close the connection', 'There is no response.', { drop: true, when: 'after' }],
  ['truncate', 'Cut off the response', 'Half of the response is sent, and nothing is stored.', { truncate: true }],
];

const OPERATIONS = {
  '': 'all requests',
  'POST /plants': 'create',
  'GET /plants': 'list',
  'GET /plants/{id}': 'read one',
  'PUT /plants/{id}': 'replace',
  'DELETE /plants/{id}': 'remove',
};

export function Faults() {
  const all = use(rules);
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  const last = useRef(Promise.resolve());
  // apply makes one change at a time, because each replaces all rules.
  const apply = (change) => {
    last.current = last.current.then(async () => {
      setBusy(true);
      setFailure(null);
      await changeRules(change).catch(setFailure);
      setBusy(false);
    });
    return last.current;
  };
  return html`<section class="card list" aria-labelledby="faults-title">
    <div class="tools"><div class="heading"><h2 id="faults-title">Faults</h2>
      <p class="note">They affect every request for plants with the token of this sandbox, also in the tab Plants.</p></div></div>
    <div id="faults-error" role="alert">${failure && html`<${FailureView} failure=${failure} />`}</div>
    <ul class="faults" aria-busy=${busy ? 'true' : null}>${FAULTS.map(([name, title, note, rule]) => html`<${Fault} key=${name} ...${{ name, title, note, rule, all, apply }} />`)}</ul>
    <h3 id="rules-title">Rules</h3>
    ${all.length === 0 ? html`<p class="note" id="no-rules">There are none. Switch a fault on, or send rules to <code class="mono">PUT /faults</code>.
      For a single request, use its header <code class="mono">Prefer</code>, such as <code class="mono">Prefer: code=503; when=after</code>.</p>`
    : html`<${Rules} all=${all} apply=${apply} />`}
  </section>`;
}

function Fault({ name, title, note, rule, all, apply }) {
  const [chosen, choose] = useState({ of: '', times: '' });
  const same = (other) => effect(other) === effect(rule);
  const on = active(all).find(same);
  const { of, times } = on ? { of: operation(on), times: String(on.left ?? '') } : chosen;
  const set = (on, now) => {
    choose(now);
    const [method, path] = now.of.split(' ');
    const added = { ...(method && { method, path }), ...rule, ...(now.times && { times: Number(now.times) }) };
    return apply((before) => [...(on ? [added] : []), ...before.filter((other) => !same(other))]);
  };
  const select = (part, label, options) => html`<select id=${`${part}-${name}`} aria-label=${`${title}: ${label}`}
    onChange=${({ target }) => (on ? set(true, { of, times, [part]: target.value }) : choose((now) => ({ ...now, [part]: target.value })))}>
    ${Object.entries(options).map(([value, text]) => html`<option value=${value} selected=${value === (part === 'of' ? of : times)}>${text}</option>`)}</select>`;
  return html`<li>
    <label class="switch"><input type="checkbox" role="switch" id=${`fault-${name}`} checked=${Boolean(on)} aria-describedby=${`note-${name}`}
      onClick=${({ target }) => set(target.checked, { of, times })} /><span class="label">${title}</span></label>
    <p class="note" id=${`note-${name}`}>${note}</p>
    ${select('of', 'which requests', { ...OPERATIONS, ...(OPERATIONS[of] ? {} : { [of]: of }) })}
    ${select('times', 'how often', { '': 'until off', 1: 'once', ...(times > 1 && { [times]: `${times} times` }) })}
  </li>`;
}

// inWords describes what a rule does, also one that has no switch.
function inWords(rule) {
  const known = FAULTS.find(([, , , other]) => effect(other) === effect(rule));
  if (known) return known[1];
  const parts = [];
  if (rule.delay) parts.push(`wait ${rule.delay.toLocaleString('en')} ms`);
  if (rule.when === 'after') parts.push('store');
  if (rule.code) parts.push(`respond with ${rule.code}`);
  if (rule.drop) parts.push('close the connection');
  if (rule.truncate) parts.push('cut off the response');
  const text = parts.join(', then ');
  return text[0].toUpperCase() + text.slice(1);
}

function Rules({ all, apply }) {
  const left = ({ left: n }) => (n === undefined ? 'until off' : n === 0 ? 'used up' : n === 1 ? 'once' : `${n.toLocaleString('en')} times`);
  const remove = (rule) => apply((now) => {
    const at = now.findIndex((other) => effect(other) === effect(rule) && operation(other) === operation(rule));
    return at < 0 ? now : now.toSpliced(at, 1);
  }).then(() => focusSoon('#rules .remove', '#tab-faults'));
  return html`<p class="note">The first rule that matches a request and is not used up applies.</p>
    <table role="table" id="rules" aria-labelledby="rules-title">
    <thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">Requests</th><th role="columnheader" scope="col">Fault</th>
      <th role="columnheader" scope="col">Left</th><th role="columnheader" scope="col"><span class="visually-hidden">Actions</span></th></tr></thead>
    <tbody role="rowgroup">${all.map((rule) => html`<tr role="row" class=${rule.left === 0 ? 'used' : ''}>
      <td role="cell" class="u-of">${OPERATIONS[operation(rule)] ?? html`<code class="mono">${operation(rule)}</code>`}</td><td role="cell" class="u-fault">${inWords(rule)}</td><td role="cell" class="u-left">${left(rule)}</td>
      <td role="cell" class="c-do"><button type="button" class="quiet remove" aria-label=${`Remove the rule: ${inWords(rule)}`} onClick=${() => remove(rule)}>Remove</button></td></tr>`)}</tbody>
  </table>`;
}
