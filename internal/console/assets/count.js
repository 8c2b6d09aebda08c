// The number of plants in the store. A count of a large store can take seconds: on
// SQLite the first one, on PostgreSQL each. So the number is requested with the
// first page and after changes of this page. A token with a rate does not spend it
// on counting: after a change, the number is unknown until the list is loaded again.

import { may, send, session } from './session.js';
import { observable } from './observable.js';

export const plantCount = observable(null);

export function countOf(headers) {
  const count = headers.get('Plants-Count');
  return count === null ? null : Number(count);
}

let timer = 0;
let notBefore = 0;

// changed is called after plants were created or removed. Many calls make one request.
export function changed() {
  if (session.get().info?.rate) {
    plantCount.set(null);
  } else if (!timer && may('read')) {
    timer = setTimeout(count, Math.max(500, notBefore - performance.now()));
  }
}

async function count() {
  timer = 0;
  const started = performance.now();
  try {
    const { headers } = await send('GET', 'plants?limit=1', { headers: { Prefer: 'count=exact' } });
    plantCount.set(countOf(headers));
  } catch {
    plantCount.set(null); // the number on display may be wrong by now
  }
  // At most a tenth of the time is spent on counting.
  notBefore = performance.now() + Math.max(1000, 9 * (performance.now() - started));
}

session.watch(() => {
  clearTimeout(timer);
  timer = notBefore = 0;
  plantCount.set(null);
});
