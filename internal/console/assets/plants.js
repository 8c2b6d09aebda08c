// The operations on plants. Every change is sent with the ETag of the version that
// is displayed, so it never overwrites the change of somebody else.

import { changed } from './count.js';
import { send } from './session.js';
import { writePlant } from './api.js';

// createFrom creates a plant from the JSON text of one. Creating the same plant
// again changes nothing, so this can be repeated after any failure.
export async function createFrom(body, options) {
  await send('POST', 'plants', { body, ...options });
  changed();
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
  changed();
}

export const isSame = (a, b) => a.id === b.id && a.name === b.name && a.tag === b.tag;
