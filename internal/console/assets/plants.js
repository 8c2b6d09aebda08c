// The operations on plants. Every change is sent with the ETag of the version that
// is displayed, so it never overwrites the change of somebody else.

import { onCreates } from './activity.js';
import { list } from './list.js';
import { changed } from './count.js';
import { send } from './session.js';
import { writePlant } from './api.js';

let own = 0; // creates of this page that GET /activity has not counted yet
let newest = 0;

// createFrom creates a plant from the JSON text of one. Creating the same plant
// again changes nothing, so this can be repeated after any failure.
export async function createFrom(body, options) {
  own++;
  newest = performance.now();
  try {
    await send('POST', 'plants', { body, ...options });
  } catch (failure) {
    own--;
    throw failure;
  }
}

export const create = (plant, options) => createFrom(writePlant(plant), options);

// read returns the current version of a plant and its ETag.
export async function read(id) {
  const { data, headers } = await send('GET', `plants/${id}`);
  return { plant: data, etag: headers.get('ETag') };
}

export const replace = ({ id, name, tag }, etag) => send('PUT', `plants/${id}`, { body: writePlant({ name, tag }), headers: { 'If-Match': etag } });

export async function remove(id, etag) {
  await send('DELETE', `plants/${id}`, { headers: { 'If-Match': etag } });
  changed(-1);
}

export const isSame = (a, b) => a.id === b.id && a.name === b.name && a.tag === b.tag;

// Creates of any client change the number of plants; those of other clients
// perhaps also the list.
onCreates((n) => {
  changed(n);
  if (performance.now() - newest > 5000) own = 0; // it was a repeated create, which is not counted
  const others = n - Math.min(n, own);
  own = Math.max(0, own - n);
  if (others > 0 && list.get().loaded && !list.get().changed) list.update({ changed: true });
});
