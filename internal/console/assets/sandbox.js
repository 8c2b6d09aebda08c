// The console of a sandbox: its tabs, and the buttons that reset and remove it. The
// header has the time left.

import { html, useEffect } from './preact.js';
import { announce, ask } from './notice.js';
import { close, send, session } from './session.js';
import { copy } from './copy.js';
import { Faults } from './faults.js';
import { FailureView } from './messages.js';
import { refresh, showTab } from './list.js';
import { observable, use } from './observable.js';
import { Panel, Tabs, useTab } from './tabs.js';
import { Requests } from './requests.js';
import { Webhooks, offered } from './webhooks.js';
import { active, loadRules, rules, several } from './rules.js';
import { usePolling } from './wait.js';

const problem = observable(null); // the Failure of an action below

export function Sandbox({ children }) {
  const titles = { plants: 'Plants', requests: 'Requests', faults: 'Faults', ...(use(offered) && { webhooks: 'Webhooks' }) };
  const tab = useTab(titles);
  const current = use(rules);
  const failure = use(problem);
  usePolling(loadRules, tab === 'faults' ? 2000 : 5000);
  const panel = (name, content) => html`<${Panel} name=${name} tab=${tab}>${content}<//>`;
  return html`
    <div class="bar"><${Tabs} label="Sandbox" titles=${titles} tab=${tab} badges=${{ faults: active(current).length }} /><${Actions} /></div>
    <div id="sandbox-error" role="alert">${failure && html`<${FailureView} failure=${failure} />`}</div>
    ${use(several) && html`<p class="away" id="several">Several processes serve this sandbox. Each has its own rules and requests, so the tabs Requests and Faults are incomplete.</p>`}
    ${panel('plants', html`${active(current).length > 0 && html`<p class="away" id="faults-note">A fault is switched on, and can affect the requests of this list too.
      ${' '}<button type="button" class="link" onClick=${() => showTab('faults')}>Show the faults</button></p>`}${children}`)}
    ${panel('requests', tab === 'requests' && html`<${Requests} />`)}
    ${panel('faults', tab === 'faults' && html`<${Faults} />`)}
    ${titles.webhooks && panel('webhooks', tab === 'webhooks' && html`<${Webhooks} />`)}`;
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
