// A free id for the next plant. Ids are any int64, so they are BigInts here.

import { isFiltered, list } from './list.js';
import { isSlow, may, send } from './session.js';
import { plantCount } from './count.js';

const MOST = 2n ** 63n - 1n;
const WINDOW = 100; // ids that one request shows

// freeId returns the first free id that it finds from an id on, or from the number of
// plants on; null if the token can't read plants. It uses the loaded page where that
// has the id, unless the page is known to be outdated.
export async function freeId(from = start(), outdated = false) {
  if (!may('read')) return null;
  let id = from > MOST ? 1n : from;
  if (!outdated) while (isLoaded(id) === true) id++;
  if (!outdated && (isLoaded(id) === false || isSlow())) return String(id);
  // Where many ids in a row are in use, it skips more and more of them.
  for (let skip = 0n; id <= MOST; skip = 2n * skip + 1n, id += skip) {
    const { data } = await send('GET', `plants?limit=${WINDOW}&after=${id - 1n}`);
    for (const plant of data) if (plant.id === String(id)) id++;
    if (data.length < WINDOW || data.at(-1).id !== String(id - 1n)) return id > MOST ? null : String(id);
  }
  return null;
}

function start() {
  const last = list.get().plants.at(-1);
  return BigInt(plantCount.get() ?? last?.id ?? 0) + 1n;
}

// isLoaded reports whether a plant of the loaded page has the id; undefined if another
// page could have it.
function isLoaded(id) {
  const { plants, cursors, next, loaded, failure } = list.get();
  const after = cursors.at(-1);
  if (!loaded || failure || isFiltered(list.get())) return undefined;
  if ((after !== null && id <= BigInt(after)) || (next !== null && id > BigInt(next))) return undefined;
  return plants.some((plant) => plant.id === String(id));
}
