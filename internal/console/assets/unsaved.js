// What would be lost by leaving: edits that are not saved, and jobs that are not
// done, such as an import.

import { ask } from './notice.js';

const edits = new Map(); // what is edited → function that reports unsaved changes
const jobs = new Set();

export function trackEdit(what, isChanged) {
  edits.set(what, isChanged);
  return () => { if (edits.get(what) === isChanged) edits.delete(what); };
}

// isEditing reports whether an editor is open, with or without changes.
export const isEditing = () => edits.size > 0;

export function trackJob() {
  const job = {};
  jobs.add(job);
  return () => jobs.delete(job);
}

// mayDiscard asks before an unsaved edit is lost and reports whether it may be.
export async function mayDiscard(what) {
  if (!edits.get(what)?.()) return true;
  const discard = await ask(`Your changes to ${what} are not saved.`, { yes: 'Discard them', no: 'Keep editing' });
  if (discard) edits.delete(what);
  return discard;
}

// mayLeave asks for each unsaved edit and reports whether the page may show
// something else.
export async function mayLeave() {
  for (const what of [...edits.keys()]) if (!(await mayDiscard(what))) return false;
  return true;
}

window.addEventListener('beforeunload', (event) => {
  if (jobs.size > 0 || [...edits.values()].some((isChanged) => isChanged())) event.preventDefault();
});
