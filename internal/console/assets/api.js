// Talking to the service: exact JSON, one call function, one kind of failure.

// An id is any int64, and a JavaScript number is exact only up to 2^53. So no
// number of the service ever becomes one: each is kept as the digits it was
// written with.
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

// For browsers whose reviver is not given the source text: put quotes around
// every number. Strings are skipped whole, so digits inside them stay theirs;
// whatever is wrong with the text is still found by JSON.parse.
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

// What a person types as an id, as digits, or null when it is not a whole
// number. Whether it is too large is for the service to say.
export function readId(typed) {
  const text = typed.trim().replace(/^[\u2212\u2013]/, '-').replace(/^\+/, '');
  return /^-?\d{1,40}$/.test(text) ? BigInt(text).toString() : null;
}

// A plant as a JSON body. The id goes in as the digits it is.
export function writePlant({ id, name, tag }) {
  const members = [];
  if (id !== undefined) members.push(`"id":${id}`);
  members.push(`"name":${JSON.stringify(name)}`);
  if (tag !== undefined) members.push(`"tag":${JSON.stringify(tag)}`);
  return `{${members.join(',')}}`;
}

// Failure carries what the service said: its sentence, its number, its status,
// and how long it asks to wait. Status 0: no answer came.
export class Failure extends Error {
  constructor(message, { status = 0, number = '', retryAfter = '' } = {}) {
    super(message);
    Object.assign(this, { status, number, retryAfter });
  }
}

// call sends one request with the token and returns the parsed body and the
// headers, or throws a Failure. Addresses are relative to the page, which is
// served from the root of the API.
export async function call(token, method, path, { headers = {}, body } = {}) {
  let response, text;
  try {
    response = await fetch(path, {
      method,
      body,
      headers: {
        Authorization: `Bearer ${token}`,
        Accept: 'application/json',
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
      credentials: 'omit',
      cache: 'no-store',
      redirect: 'error',
      signal: AbortSignal.timeout(30_000),
    });
    text = await response.text();
  } catch (cause) {
    throw new Failure(cause.name === 'TimeoutError'
      ? 'No answer from the service within 30 seconds.'
      : 'The service cannot be reached. Check the connection and try again.');
  }
  let data;
  try {
    data = text === '' ? undefined : parseExact(text);
  } catch {
    data = undefined;
  }
  if (response.ok) return { data, headers: response.headers };
  throw new Failure(typeof data?.message === 'string' ? data.message : `The answer was ${response.status} with no explanation.`, {
    status: response.status,
    number: data?.error ?? '',
    retryAfter: response.headers.get('Retry-After') ?? '',
  });
}

// The cursor of the next page, from Link: <…?after=…>; rel="next". Only the
// query is used: the address may name a public host that differs from ours.
export function nextCursor(link) {
  for (const [, target, params] of (link ?? '').matchAll(/<([^>]*)>([^,<]*)/g)) {
    if (/;\s*rel\s*=\s*"?next"?/i.test(params)) {
      return new URL(target, location.href).searchParams.get('after');
    }
  }
  return null;
}
