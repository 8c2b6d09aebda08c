// The search field. It searches while the user types, and shows what the list
// shows when that changes otherwise, such as with the Back button.

import { html, useEffect, useRef } from './preact.js';
import { list, show } from './list.js';
import { use } from './observable.js';

const PAUSE = 250; // milliseconds without a key before a request is sent

export function Search() {
  const { q } = use(list);
  const field = useRef();
  const timer = useRef(0);
  const search = async () => {
    clearTimeout(timer.current);
    timer.current = 0;
    const typed = field.current.value.trim();
    // A search replaces the previous one in the history of the browser, so that
    // Back does not go through every letter.
    if (typed !== list.get().q && !(await show({ q: typed }, { replace: list.get().q !== '' }))) {
      field.current.value = list.get().q; // the user keeps editing
    }
  };
  useEffect(() => {
    if (!timer.current && field.current.value.trim() !== q) field.current.value = q;
  }, [q]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return html`<form id="search" role="search" novalidate onSubmit=${(event) => { event.preventDefault(); search(); }}>
    <label class="visually-hidden" for="search-text">Search by id, name or tag</label>
    <input id="search-text" ref=${field} type="search" autocomplete="off" autocapitalize="off" spellcheck=${false}
      placeholder="Search by id, name or tag" aria-describedby="list-order"
      onInput=${() => { clearTimeout(timer.current); timer.current = setTimeout(search, PAUSE); }} />
  </form>`;
}
