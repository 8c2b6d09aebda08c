// Creates per second, from GET /activity once a second while the page is visible.
// It tells how many plants a process of the service has created since it started.
// There may be several processes, and each response comes from any of them: so the
// last number of each process is kept, and only increases are counted. These
// requests do not spend the rate of the token.

import { may, send, session } from './session.js';
import { observable } from './observable.js';
import { sentence } from './messages.js';

export const SPAN = 60_000;

// bars are { from, to, rate } of the last minute; now is the time of the newest.
export const activity = observable({ bars: [], now: 0, stopped: '' });

// increase returns how many plants were created since the last response of the
// same process. The first response of a process is only the start.
export function increase(last, { process, created }) {
  const now = Number(created);
  const before = last.get(process) ?? now;
  last.set(process, now);
  return Math.max(0, now - before);
}

const last = new Map(); // process → number of plants it has created
const watchers = new Set();
let timer = 0;
let running = 0; // number of the current run; responses of an older one are dropped
let previous = null; // time of the previous response

// onCreates calls a function after plants were created, by anybody.
export const onCreates = (watcher) => watchers.add(watcher);

function restart() {
  clearTimeout(timer);
  running++;
  // Creates while the page was hidden would be drawn as one second.
  last.clear();
  previous = null;
  if (!document.hidden && may('read')) tick(running);
}

async function tick(run) {
  const requested = performance.now();
  let wait = 1000;
  try {
    const { data } = await send('GET', 'activity');
    if (run !== running) return;
    const now = performance.now();
    const n = increase(last, data);
    const { bars } = activity.get();
    const bar = previous && { from: previous, to: now, rate: (1000 * n) / (now - previous) };
    previous = now;
    wait = Math.max(100, 1000 - (now - requested));
    activity.set({ bars: [...bars, bar].filter((b) => b && b.to > now - SPAN), now, stopped: '' });
    if (n > 0) for (const watcher of watchers) watcher(n);
  } catch (failure) {
    if (run !== running) return;
    last.clear();
    previous = null;
    wait = 1000 * Math.max(5, failure.retryAfter ?? 0);
    activity.update({ stopped: `Stopped. ${sentence(failure)}` });
  }
  timer = setTimeout(() => tick(run), wait);
}

document.addEventListener('visibilitychange', restart);
session.watch(() => {
  activity.set({ bars: [], now: 0, stopped: '' });
  restart();
});
