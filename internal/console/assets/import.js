// Importing a file: several creates in flight, and every plant that is not stored
// is listed with its line and the reason. A create can be repeated, so an import
// can be too.

import { Failure } from './api.js';
import { Patient, each } from './wait.js';
import { announce } from './notice.js';
import { createFrom } from './plants.js';
import { list, load } from './list.js';
import { observable } from './observable.js';
import { reason, sentence } from './messages.js';
import { records } from './files.js';
import { may, session } from './session.js';
import { isEditing, trackJob } from './unsaved.js';

// Browsers open six connections to an HTTP/1.1 server, and have no such limit with
// HTTP/2, which a proxy may speak.
const IN_FLIGHT = performance.getEntriesByType('navigation')[0]?.nextHopProtocol === 'h2' ? 32 : 6;
const LISTED = 1000; // bad lines that are shown; the rest is counted

// job is the import on display, or null: name, part (of the file that was read, 0
// to 1), seconds since its start, stored, bad (number), lines, waiting (a Failure), state
// and stop.
export const job = observable(null);

export async function importFile(file) {
  if (job.get()?.state === 'running') {
    announce('This file is not imported, because an import is running. Wait for it to end, or cancel it.');
    return;
  }
  const controller = new AbortController();
  const done = trackJob();
  const started = performance.now();
  let read = 0; // part of the file that is done
  let drawn = 0;
  let stored = 0;
  let bad = 0;
  let count = 0;
  const lines = [];
  const update = (members) => { if (job.get()) job.update(members); }; // null after a sign-out
  const progress = (more = {}) => update({ part: read, seconds: (performance.now() - started) / 1000, stored, bad, lines, ...more });
  const refuse = (line, why, at = 0) => {
    bad++;
    if (lines.length < LISTED) lines.push({ line, why, at });
  };
  job.set({ name: file.name, state: 'running', waiting: null, stop: () => controller.abort() });
  progress();
  const patient = new Patient({ signal: controller.signal, waiting: (waiting) => update({ waiting }) });
  let state = 'done';
  try {
    await each(records(file), IN_FLIGHT, async ({ line, body, problem, part }) => {
      const at = count++; // the order in the file, for several plants on one line
      if (problem) refuse(line, problem, at);
      else {
        try {
          await patient.send(() => createFrom(body));
          stored++;
        } catch (failure) {
          if (!(failure instanceof Failure) || failure.aborted || failure.status === 401 || failure.number === '40301') throw failure;
          refuse(line, failure.number === '40009' ? 'Another plant has this id.' : reason(failure), at);
        }
      }
      read = Math.max(read, part ?? 0);
      if (performance.now() < drawn + 100) return; // drawing for each plant would take longer than creating it
      drawn = performance.now();
      progress();
    });
  } catch (failure) {
    state = failure.aborted ? 'cancelled' : 'failed';
    if (!failure.aborted) refuse('', failure instanceof Failure ? sentence(failure) : 'The file cannot be read. Choose it again.');
  } finally {
    done();
  }
  lines.sort((a, b) => a.line - b.line || a.at - b.at);
  progress({ state, waiting: null });
  if (!session.get().token) return;
  if (isEditing()) list.update({ changed: true });
  else if (may('read')) load();
}

session.watch(({ token }) => {
  if (token) return;
  job.get()?.stop();
  job.set(null);
});

const samples = [
  ['Monstera deliciosa', 'climber'], ['Ficus lyrata', 'tree'], ['Aloe vera', 'succulent'], ['Pilea peperomioides', 'windowsill'],
  ['Olea europaea', 'tree'], ['Lavandula angustifolia', 'herb'], ['Nephrolepis exaltata', 'fern'], ['Phalaenopsis amabilis', 'orchid'],
  ['Crassula ovata', 'succulent'], ['Epipremnum aureum', 'climber'],
];

// importSamples imports ten plants as a file would be.
export async function importSamples() {
  const plants = samples.map(([name, tag], i) => ({ id: i + 1, name, tag }));
  await importFile(new File([JSON.stringify(plants)], 'Ten sample plants'));
  if (job.get()?.state === 'done' && job.get().bad === 0) job.set(null);
}
