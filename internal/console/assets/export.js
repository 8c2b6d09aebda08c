// Exporting plants to a file, page by page.

import { Patient } from './wait.js';
import { formats } from './files.js';
import { list } from './list.js';
import { nextCursor } from './api.js';
import { observable } from './observable.js';
import { send, session } from './session.js';
import { trackJob } from './unsaved.js';

const PAGE = 1000;

// job is the export on display, or null: count, waiting (a Failure), failure, stop
// and, at the end, url and name of the file.
export const job = observable(null);

// pages yields the plants to export: those of the page, or all that the service
// has, with or without the search.
async function* pages(which, patient) {
  const { plants, q, tag } = list.get();
  if (which === 'page') {
    yield plants;
    return;
  }
  for (let after = null; ;) {
    const query = new URLSearchParams({ limit: PAGE });
    if (after !== null) query.set('after', after);
    if (which === 'search' && q) query.set('q', q);
    if (which === 'search' && tag !== null) query.set('tag', tag);
    const { data, headers } = await patient.send(() => send('GET', `plants?${query}`));
    yield data;
    after = nextCursor(headers.get('Link'));
    if (after === null) return;
  }
}

export async function exportFile(which, format) {
  discard();
  const { type, extension, before, between, after, plant } = formats[format];
  const controller = new AbortController();
  const done = trackJob();
  const parts = [before];
  let count = 0;
  job.set({ count, state: 'running', waiting: null, failure: null, stop: () => controller.abort() });
  const update = (members) => { if (job.get()) job.update(members); }; // null after a sign-out
  const patient = new Patient({ signal: controller.signal, waiting: (waiting) => update({ waiting }) });
  try {
    for await (const page of pages(which, patient)) {
      if (page.length) parts.push((count ? between : '') + page.map(plant).join(between));
      count += page.length;
      update({ count });
    }
    if (count) parts.push(after);
    else if (format === 'JSON') parts.push(']\n');
    const name = `${session.get().info.store}.${extension}`;
    update({ state: 'done', url: URL.createObjectURL(new Blob(parts, { type })), name });
  } catch (failure) {
    update({ state: failure.aborted ? 'cancelled' : 'failed', failure, waiting: null });
  } finally {
    done();
  }
}

export function discard() {
  if (job.get()?.url) URL.revokeObjectURL(job.get().url);
  job.get()?.stop();
  job.set(null);
}

session.watch(({ token }) => { if (!token) discard(); });
