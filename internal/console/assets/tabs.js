// The tabs of the console. The URL names the tab that is shown: see list.js.

import { html, useRef } from './preact.js';
import { list, showTab } from './list.js';
import { use } from './observable.js';

// useTab returns the name of the tab that is shown. titles has the titles of the tabs by name.
export function useTab(titles) {
  const { tab } = use(list);
  return titles[tab] ? tab : 'plants';
}

export function Tabs({ label, titles, tab, badges = {} }) {
  const place = useRef();
  const names = Object.keys(titles);
  const move = (event) => {
    const at = names.indexOf(tab);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const name = names.at(to % names.length);
    showTab(name);
    place.current.querySelector(`#tab-${name}`).focus();
  };
  return html`<div role="tablist" aria-label=${label} class="tabs" ref=${place} onKeyDown=${move}>
    ${names.map((name) => html`<button type="button" role="tab" id=${`tab-${name}`} key=${name} aria-controls=${`panel-${name}`}
      aria-selected=${String(tab === name)} tabindex=${tab === name ? 0 : -1} onClick=${() => showTab(name)}>
      ${titles[name]}${badges[name] > 0 && html`${' '}<span class="badge">${badges[name]}<span class="visually-hidden"> on</span></span>`}</button>`)}
  </div>`;
}

export const Panel = ({ name, tab, children }) => html`<div role="tabpanel" id=${`panel-${name}`} aria-labelledby=${`tab-${name}`}
  hidden=${tab !== name}>${children}</div>`;
