// Calls to the service: exact JSON, one call function, one kind of failure.

// An id is any int64, and a JavaScript number is exact only up to 2^53. So every
// number in a response is kept as a string of its digits.
export function parseExact(text) {
  return reviverSeesSource
    ? JSON.parse(text, (key, value, context) => (typeof value === 'number' ? context.source : value))
    : JSON.parse(quoteNumbers(text));
}

const reviverSeesSource = (() => {
  let seen = false;
  JSON.parse('1', (key, value, context) => { seen = context?.source === '1'; });
  return seen;
})();

// quoteNumbers is for browsers whose reviver does not get the source text: it
// puts every number into quotes. Strings are skipped, so digits in them do not
// change, and JSON.parse still reports invalid JSON.
export function quoteNumbers(text) {
  let out = '';
  let copied = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '"') {
      for (i++; i < text.length && text[i] !== '"'; i++) if (text[i] === '\\') i++;
    } else if (c === '-' || (c >= '0' && c <= '9')) {
      let end = i + 1;
      while (end < text.length && '0123456789+-.eE'.includes(text[end])) end++;
      out += text.slice(copied, i) + '"' + text.slice(i, end) + '"';
      copied = end;
      i = end - 1;
    }
  }
  return out + text.slice(copied);
}

// readId returns the digits of a typed id, or null if it is not a whole number.
// The service checks the range.
export function readId(typed) {
  const text = typed.trim().replace(/^[\u2212\u2013]/, '-').replace(/^\+/, '');
  return /^-?\d{1,40}$/.test(text) ? BigInt(text).toString() : null;
}

// writePlant returns a plant as a JSON body. The id is inserted as its digits.
export function writePlant({ id, name, tag }) {
  const members = [];
  if (id !== undefined) members.push(`"id":${id}`);
  members.push(`"name":${JSON.stringify(name)}`);
  if (tag !== undefined) members.push(`"tag":${JSON.stringify(tag)}`);
  return `{${members.join(',')}}`;
}

// Failure is a request that did not succeed: the message, number, status, time to
// wait and request id of the response. Status 0 means that there was no response.
export class Failure extends Error {
  constructor(message, { status = 0, number = '', retryAfter = 0, request = '', aborted = false } = {}) {
    super(message);
    Object.assign(this, { status, number, retryAfter, request, aborted });
  }
}

const TIMEOUT = 30_000;

// call sends one request, with the token unless it is '', and returns the parsed body and the
// headers, or throws a Failure. Paths are relative to the page, which is served
// from the root of the API.
export async function call(token, method, path, { headers = {}, body, signal } = {}) {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort('timeout'), TIMEOUT);
  const onAbort = () => abort.abort();
  signal?.addEventListener('abort', onAbort);
  if (signal?.aborted) onAbort();
  let response, text;
  try {
    response = await fetch(path, {
      method,
      body,
      headers: {
        ...(token && { Authorization: `Bearer ${token}` }),
        Accept: 'application/json',
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
      credentials: 'omit',
      cache: 'no-store',
      redirect: 'error',
      signal: abort.signal,
    });
    text = await response.text();
  } catch {
    if (signal?.aborted) throw new Failure('The request was cancelled.', { aborted: true });
    throw new Failure(abort.signal.reason === 'timeout'
      ? 'The service did not respond within 30 seconds.'
      : 'The service cannot be reached. Check the connection and try again.');
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
  }
  let data;
  try {
    data = text === '' ? undefined : parseExact(text);
  } catch {
    data = undefined;
  }
  if (response.ok) return { data, headers: response.headers };
  throw new Failure(typeof data?.message === 'string' ? data.message : `The service responded with status ${response.status} and no message.`, {
    status: response.status,
    number: data?.error ?? '',
    retryAfter: Number(response.headers.get('Retry-After')) || 0,
    request: response.headers.get('X-Request-Id') ?? '',
  });
}

// nextCursor returns the cursor of the next page, from Link: <…?after=…>; rel="next".
// Only the query is used, because the link may name a different public host.
export function nextCursor(link) {
  for (const [, target, params] of (link ?? '').matchAll(/<([^>]*)>([^,<]*)/g)) {
    if (/;\s*rel\s*=\s*"?next"?/i.test(params)) {
      return new URL(target, location.href).searchParams.get('after');
    }
  }
  return null;
}
