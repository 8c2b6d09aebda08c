// Waits for the time in Retry-After, and limits the requests in flight.

import { useEffect, useState } from './preact.js';
import { Failure } from './api.js';

// useCountdown returns the whole seconds until a failed request may be sent again.
export function useCountdown(failure) {
  const [seconds, setSeconds] = useState(failure?.retryAfter ?? 0);
  useEffect(() => {
    const end = performance.now() + 1000 * (failure?.retryAfter ?? 0);
    const tick = () => setSeconds(Math.max(0, Math.ceil((end - performance.now()) / 1000)));
    tick();
    const timer = setInterval(tick, 500);
    return () => clearInterval(timer);
  }, [failure]);
  return seconds;
}

// usePolling calls work now, and `every` milliseconds after each call has ended, while
// the page is visible. It starts again when an input changes. It ignores failures.
export function usePolling(work, every, inputs = []) {
  useEffect(() => {
    let stopped = false;
    let timer = 0;
    const tick = async () => {
      if (!document.hidden) await Promise.resolve(work()).catch(() => {});
      if (!stopped) timer = setTimeout(tick, every);
    };
    tick();
    return () => { stopped = true; clearTimeout(timer); };
  }, [every, ...inputs]);
}

const cancelled = () => new Failure('The request was cancelled.', { aborted: true });

function sleep(seconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => { clearTimeout(timer); reject(cancelled()); };
    const timer = setTimeout(() => { signal?.removeEventListener('abort', stop); resolve(); }, 1000 * seconds);
    if (signal?.aborted) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
}

// A request that failed with one of these was not executed, or is a create, which
// can be repeated: a later attempt may succeed.
const temporary = ({ status }) => status === 0 || status === 429 || status === 503;

// Patient sends the requests of one job. If the service asks to wait, all requests
// of the job wait, and waiting(failure) is called; waiting(null) when they go on. A
// request without a response is sent again, up to `tries` times.
export class Patient {
  #signal; #waiting; #when; #tries; #pause = null;

  constructor({ signal, waiting, when = temporary, tries = Infinity }) {
    this.#signal = signal;
    this.#waiting = waiting;
    this.#when = when;
    this.#tries = tries;
  }

  async send(request) {
    for (let lost = 0; ;) {
      while (this.#pause) await this.#pause;
      if (this.#signal?.aborted) throw cancelled();
      try {
        return await request();
      } catch (failure) {
        if (failure.aborted || !this.#when(failure)) throw failure;
        if (failure.status === 0 && ++lost >= this.#tries) throw failure;
        this.#pause ??= this.#wait(failure);
        await this.#pause;
      }
    }
  }

  async #wait(failure) {
    this.#waiting(failure);
    try {
      await sleep(failure.retryAfter || 3, this.#signal);
    } finally {
      this.#pause = null;
      this.#waiting(null);
    }
  }
}

// each calls work for every item of an iterable, sync or async, with at most
// `most` calls in flight. It stops at the first error that work throws.
export async function each(items, most, work) {
  const iterator = items[Symbol.asyncIterator]?.() ?? items[Symbol.iterator]();
  let stopped = false;
  const worker = async () => {
    while (!stopped) {
      const { done, value } = await iterator.next();
      if (done || stopped) return;
      try {
        await work(value);
      } catch (error) {
        stopped = true;
        throw error;
      }
    }
  };
  const ended = await Promise.allSettled(Array.from({ length: most }, worker));
  const failed = ended.find(({ status }) => status === 'rejected');
  if (failed) throw failed.reason;
}
