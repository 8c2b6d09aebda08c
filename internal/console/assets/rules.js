// The rules for faults in a sandbox. They are kept by one process of the service.

import { observable } from './observable.js';
import { send, session } from './session.js';

// A rule is as in PUT /faults, with numbers; left is how often it still applies.
export const rules = observable([]);

// several is true if different processes have responded. Each has rules and a journal
// of its own.
export const several = observable(false);
let process = '';

// sandboxed sends a request about faults or the journal.
export async function sandboxed(method, path, body) {
  const { data, headers } = await send(method, path, { body });
  const now = headers.get('Sandbox-Process');
  if (process && now && now !== process) several.set(true);
  process = now || process;
  return data;
}

const number = (value) => (value === undefined ? undefined : Number(value));
const read = ({ code, delay, times, left, ...rest }) =>
  ({ ...rest, code: number(code), delay: number(delay), times: number(times), left: number(left) });

// active returns the rules that still apply.
export const active = (all) => all.filter(({ left }) => left !== 0);

// effect and operation identify what a rule does, and to which requests.
export const effect = ({ code, drop, truncate, delay, when }) => JSON.stringify([code, drop, truncate, delay, when === 'after' && !truncate]);
export const operation = ({ method, path }) => [method, path].filter(Boolean).join(' ');

export async function loadRules() {
  const now = (await sandboxed('GET', 'faults')).map(read);
  if (JSON.stringify(now) !== JSON.stringify(rules.get())) rules.set(now);
}

// changeRules replaces the current rules with change(rules). Each keeps the number of
// times that are left; rules that are used up are removed.
export async function changeRules(change) {
  const now = active((await sandboxed('GET', 'faults')).map(read)).map(({ left, ...rule }) => ({ ...rule, times: left }));
  rules.set((await sandboxed('PUT', 'faults', JSON.stringify(change(now)))).map(read));
}

session.watch(() => {
  rules.set([]);
  several.set(false);
  process = '';
});
