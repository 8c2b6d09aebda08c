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

// mayLeave asks before an unsaved edit is lost and reports whether the page may
// show something else.
export async function mayLeave() {
  for (const [what, isChanged] of edits) {
    if (!isChanged()) continue;
    const discard = await ask(`Your changes to ${what} are not saved.`, { yes: 'Discard them', no: 'Keep editing' });
    if (!discard) return false;
    edits.delete(what);
  }
  return true;
}

window.addEventListener('beforeunload', (event) => {
  if (jobs.size > 0 || [...edits.values()].some((isChanged) => isChanged())) event.preventDefault();
});
