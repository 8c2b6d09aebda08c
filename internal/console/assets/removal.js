// Removing plants. They are removed at once; undo creates them again as they were.
// A plant that somebody changed after it was displayed is kept.

import { create, isSame, read, remove } from './plants.js';
import { drop, isFiltered, list, load, put, show } from './list.js';
import { Patient, each } from './wait.js';
import { changed } from './count.js';
import { announce, ask, undo } from './notice.js';
import { copy } from './copy.js';
import { counted } from './text.js';
import { may, session } from './session.js';
import { sentence } from './messages.js';
import { isEditing, trackJob } from './unsaved.js';
import { Failure, writePlant } from './api.js';

const IN_FLIGHT = 4;
const UNDO_SECONDS = 10;

const TRIES = 4; // of a request without a response

const named = (plants) => (plants.length === 1 ? `Plant ${plants[0].id}` : counted(plants.length, 'plant'));
const are = (plants) => (plants.length === 1 ? 'is' : 'are');
const byId = (a, b) => (BigInt(a.id) < BigInt(b.id) ? -1 : 1);
const patient = (what) => new Patient({
  tries: TRIES,
  waiting: (failure) => failure && announce(`Waiting to ${what} more. ${sentence(failure)}`, { seconds: 60 }),
});

// removeOne removes a plant if it is still as displayed. It throws a sentence for
// the user if it did not, with maybe set if the outcome is unknown.
async function removeOne(plant, job) {
  let maybe = false;
  try {
    const { plant: current, etag } = await job.send(() => read(plant.id));
    if (!isSame(current, plant)) {
      put(current);
      throw Object.assign(new Failure(''), { status: 412 });
    }
    await job.send(() => remove(plant.id, etag).catch((failure) => {
      // The plant was there a moment ago: an attempt without a response has removed
      // it. Browsers also repeat a DELETE by themselves.
      if (failure.status === 404) return changed();
      maybe ||= failure.status === 0 || failure.number === '50302';
      throw failure;
    }));
  } catch (failure) {
    if (failure.status === 401) throw failure;
    const why = maybe ? 'It may have been removed. Refresh the list to see it.'
      : failure.status === 412 ? 'Somebody changed it in the meantime. Check it before you remove it.'
        : failure.status === 404 ? 'Somebody else has removed it.' : sentence(failure);
    throw Object.assign(new Error(why), { maybe, gone: failure.status === 404 });
  }
}

const removing = new Set(); // ids; a second click on a row changes nothing

// removePlants removes plants of the page and reports those that are kept. It
// returns false if the user is asked and says no.
export async function removePlants(chosen) {
  const plants = chosen.filter(({ id }) => !removing.has(id));
  if (plants.length === 0) return false;
  // Undo needs the scope to create. Without it, ask first.
  if (!may('create') && !(await ask(`Remove ${named(plants).replace('Plant', 'plant')}? This token cannot create plants, so there is no undo.`,
    { yes: 'Remove', no: 'Keep' }))) return false;
  for (const { id } of plants) removing.add(id);
  const done = trackJob();
  const removed = [];
  const undoable = [];
  const gone = new Set();
  const lines = [];
  const job = patient('remove');
  try {
    await each(plants, IN_FLIGHT, async (plant) => {
      try {
        await removeOne(plant, job);
        removed.push(plant);
        undoable.push(plant);
        gone.add(plant.id);
      } catch (problem) {
        if (problem.status === 401) throw problem;
        if (problem.gone) gone.add(plant.id);
        if (problem.maybe) undoable.push(plant); // creating it again is safe in both cases
        lines.push(`Plant ${plant.id}: ${problem.message}`);
      }
    });
  } catch {
    return true; // signed out
  } finally {
    for (const { id } of plants) removing.delete(id);
    done();
  }
  drop(gone);
  list.update({ problems: lines.length ? { title: `${counted(lines.length, 'plant')} not removed`, lines } : null });
  announce();
  if (!may('create')) announce(removed.length > 0 && removedText(removed));
  else if (undoable.length) offerUndo(removed, undoable);
  return true;
}

const removedText = (removed) => `${named(removed)} ${are(removed)} removed.`;

// offerUndo adds plants to those that Undo restores, until the notice has been
// displayed for UNDO_SECONDS without another removal.
function offerUndo(removed, undoable) {
  const before = undo.get() ?? { removed: [], undoable: [] };
  const ids = new Set(undoable.map(({ id }) => id));
  const add = (earlier, now) => [...earlier.filter(({ id }) => !ids.has(id)), ...now];
  const all = { removed: add(before.removed, removed), undoable: add(before.undoable, undoable) };
  const act = () => {
    undo.set(null);
    restore(all.undoable.toSorted(byId));
  };
  undo.set({
    ...all,
    text: all.removed.length ? removedText(all.removed) : 'The outcome is unknown.',
    actions: [{ label: 'Undo', act }],
    seconds: UNDO_SECONDS,
  });
}

// Plants of another token are not restored with this one.
session.watch(() => undo.set(null));

// restore creates removed plants again. Those whose id belongs to another plant by
// now are reported, with their content to copy.
async function restore(plants) {
  const done = trackJob();
  announce(`Restoring ${counted(plants.length, 'plant')}…`, { seconds: 600 });
  const lost = [];
  const lines = [];
  let hidden = false;
  const job = patient('restore');
  await each(plants, IN_FLIGHT, async (plant) => {
    try {
      await job.send(() => create(plant));
      if (!put(plant)) hidden = true;
    } catch (failure) {
      lost.push(plant);
      lines.push(`Plant ${plant.id}: ${failure.number === '40009' ? 'Its id belongs to another plant by now.' : sentence(failure)}`);
    }
  });
  done();
  const back = plants.filter((plant) => !lost.includes(plant));
  const text = back.length ? `${named(back)} ${are(back)} restored.` : undefined;
  announce(text);
  if (hidden && (await isElsewhere(back))) announce(text, { actions: [{ label: 'Show it', act: () => show({ q: back[0].id, tag: null }) }] });
  if (lost.length) {
    list.update({
      problems: {
        title: `${counted(lost.length, 'plant')} not restored`,
        lines,
        actions: [{ label: 'Copy as JSON', act: () => copy(`[${lost.map(writePlant).join(',\n')}]\n`, 'The list of plants') }],
      },
    });
  }
}

// isElsewhere loads a search again, since the service decides what it finds, and
// reports whether the only restored plant is not in the list.
async function isElsewhere(plants) {
  if (isFiltered(list.get()) && isEditing()) list.update({ changed: true });
  else if (isFiltered(list.get())) await load();
  return plants.length === 1 && !list.get().plants.some(({ id }) => id === plants[0].id);
}
