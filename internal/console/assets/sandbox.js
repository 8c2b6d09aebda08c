// The console of a sandbox: its tabs, and the buttons that reset and remove it. The
// header has the time left.

import { html, useEffect, useRef } from './preact.js';
import { announce, ask } from './notice.js';
import { close, send, session } from './session.js';
import { copy } from './copy.js';
import { Faults } from './faults.js';
import { FailureView } from './messages.js';
import { list, refresh, showTab } from './list.js';
import { observable, use } from './observable.js';
import { Requests } from './requests.js';
import { active, loadRules, rules, several } from './rules.js';
import { usePolling } from './wait.js';

const TABS = { plants: 'Plants', requests: 'Requests', faults: 'Faults' };

const problem = observable(null); // the Failure of an action below

export function Sandbox({ children }) {
  const tab = TABS[use(list).tab] ? use(list).tab : 'plants';
  const current = use(rules);
  const failure = use(problem);
  usePolling(loadRules, tab === 'faults' ? 2000 : 5000);
  const panel = (name, content) => html`<div role="tabpanel" id=${`panel-${name}`} aria-labelledby=${`tab-${name}`}
    hidden=${tab !== name}>${content}</div>`;
  return html`
    <div class="bar"><${Tabs} tab=${tab} faults=${active(current).length} /><${Actions} /></div>
    <div id="sandbox-error" role="alert">${failure && html`<${FailureView} failure=${failure} />`}</div>
    ${use(several) && html`<p class="away" id="several">Several processes serve this sandbox. Each has its own rules and requests, so the tabs Requests and Faults are incomplete.</p>`}
    ${panel('plants', html`${active(current).length > 0 && html`<p class="away" id="faults-note">A fault is switched on, and can affect the requests of this list too.
      ${' '}<button type="button" class="link" onClick=${() => showTab('faults')}>Show the faults</button></p>`}${children}`)}
    ${panel('requests', tab === 'requests' && html`<${Requests} />`)}
    ${panel('faults', tab === 'faults' && html`<${Faults} />`)}`;
}

function Tabs({ tab, faults }) {
  const place = useRef();
  const names = Object.keys(TABS);
  const move = (event) => {
    const at = names.indexOf(tab);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const name = names.at(to % names.length);
    showTab(name);
    place.current.querySelector(`#tab-${name}`).focus();
  };
  return html`<div role="tablist" aria-label="Sandbox" class="tabs" ref=${place} onKeyDown=${move}>
    ${names.map((name) => html`<button type="button" role="tab" id=${`tab-${name}`} key=${name} aria-controls=${`panel-${name}`}
      aria-selected=${String(tab === name)} tabindex=${tab === name ? 0 : -1} onClick=${() => showTab(name)}>
      ${TABS[name]}${name === 'faults' && faults > 0 && html`${' '}<span class="badge">${faults}<span class="visually-hidden"> on</span></span>`}</button>`)}
  </div>`;
}

async function act(method, path) {
  problem.set(null);
  try {
    await send(method, path);
    return true;
  } catch (failure) {
    problem.set(failure);
    return false;
  }
}

async function reset() {
  if (!(await ask('Reset the plants? Your changes are lost, and the initial plants are restored. Requests and faults stay.',
    { yes: 'Reset', no: 'Keep' }))) return;
  if (await act('POST', 'sandbox/reset')) {
    announce('The initial plants are restored.');
    refresh();
  }
}

async function end() {
  if (!(await ask('Remove this sandbox? Its plants, requests and faults are removed, and its token becomes invalid.', { yes: 'Remove', no: 'Keep' }))) return;
  if (await act('DELETE', 'sandbox')) {
    close();
    announce('The sandbox is removed.');
  }
}

function Actions() {
  useEffect(() => () => problem.set(null), []);
  return html`<div class="buttons">
    <button type="button" class="quiet" id="copy-token" onClick=${() => copy(session.get().token, 'The token')}>Copy token</button>
    <button type="button" class="quiet" id="reset" onClick=${reset}>Reset</button>
    <button type="button" class="quiet remove" id="delete-sandbox" onClick=${end}>Remove<span class="wide"> this sandbox</span></button>
  </div>`;
}
