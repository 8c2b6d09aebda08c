// Removing plants. They are removed at once; undo creates them again as they were.
// A plant that somebody changed after it was displayed is kept.

import { create, isSame, read, remove } from './plants.js';
import { drop, list, put } from './list.js';
import { Patient, each } from './wait.js';
import { announce, ask } from './notice.js';
import { copy } from './copy.js';
import { counted } from './text.js';
import { may } from './session.js';
import { sentence } from './messages.js';
import { trackJob } from './unsaved.js';
import { writePlant } from './api.js';

const IN_FLIGHT = 4;
const UNDO_SECONDS = 10;

const named = (plants) => (plants.length === 1 ? `Plant ${plants[0].id}` : counted(plants.length, 'plant'));
const are = (plants) => (plants.length === 1 ? 'is' : 'are');

// removeOne removes a plant if it is still as displayed. It returns whether undo
// can create it again, or throws a Failure.
async function removeOne(plant, job) {
  const { plant: current, etag } = await job.send(() => read(plant.id));
  if (!isSame(current, plant)) {
    put(current);
    throw new Error('Somebody changed it in the meantime. Look at it again.');
  }
  await job.send(() => remove(plant.id, etag));
}

// removePlants removes plants of the page and reports those that are kept.
export async function removePlants(plants) {
  // Undo needs the scope to create. Without it, ask first.
  if (!may('create') && !(await ask(`Remove ${named(plants).replace('Plant', 'plant')}? This token cannot create plants, so there is no undo.`,
    { yes: 'Remove', no: 'Keep' }))) return false;
  const done = trackJob();
  const removed = [];
  const gone = new Set();
  const lines = [];
  const job = new Patient({ waiting: (failure) => failure && announce(`Waiting to remove more. ${sentence(failure)}`, { seconds: 60 }) });
  try {
    await each(plants, IN_FLIGHT, async (plant) => {
      try {
        await removeOne(plant, job);
        removed.push(plant);
        gone.add(plant.id);
      } catch (failure) {
        if (failure.status === 401) throw failure;
        if (failure.status === 404) gone.add(plant.id); // somebody else removed it
        lines.push(`Plant ${plant.id}: ${failure.status === 404 ? 'Somebody else has removed it.' : failure.status === 412
          ? 'Somebody changed it in the meantime. Look at it again.' : sentence(failure)}`);
      }
    });
  } catch {
    return false; // signed out
  } finally {
    done();
  }
  drop(gone);
  list.update({ problems: lines.length ? { title: `${counted(lines.length, 'plant')} not removed here`, lines } : null });
  removed.sort((a, b) => (BigInt(a.id) < BigInt(b.id) ? -1 : 1));
  if (removed.length) {
    announce(`${named(removed)} ${are(removed)} removed.`, {
      actions: may('create') ? [{ label: 'Undo', act: () => restore(removed) }] : [],
      seconds: UNDO_SECONDS,
    });
  }
  return true;
}

// restore creates removed plants again. Those whose id belongs to another plant by
// now are reported, with their content to copy.
async function restore(plants) {
  const done = trackJob();
  announce(`Restoring ${counted(plants.length, 'plant')}…`, { seconds: 600 });
  const lost = [];
  const lines = [];
  const job = new Patient({ waiting: (failure) => failure && announce(`Waiting to restore more. ${sentence(failure)}`, { seconds: 600 }) });
  await each(plants, IN_FLIGHT, async (plant) => {
    try {
      await job.send(() => create(plant));
      put(plant);
    } catch (failure) {
      lost.push(plant);
      lines.push(`Plant ${plant.id}: ${failure.number === '40009' ? 'Its id belongs to another plant by now.' : sentence(failure)}`);
    }
  });
  done();
  const back = plants.filter((plant) => !lost.includes(plant));
  announce(back.length ? `${named(back)} ${are(back)} back.` : undefined);
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
