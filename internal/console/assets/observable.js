// A value that components and modules can watch.

import { useLayoutEffect, useReducer } from './preact.js';

export function observable(value) {
  const watchers = new Set();
  return {
    get: () => value,
    set(next) {
      if (next === value) return;
      value = next;
      for (const watcher of [...watchers]) watcher(value);
    },
    // update changes some members of a value that is an object.
    update(members) { this.set({ ...value, ...members }); },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

// use returns the current value and renders the component again when it changes.
export function use(source) {
  const [, redraw] = useReducer((n) => n + 1, 0);
  useLayoutEffect(() => source.watch(redraw), [source]);
  return source.get();
}
