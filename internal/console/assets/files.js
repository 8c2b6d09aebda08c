// Files of plants: a JSON array, NDJSON (one JSON object on each line) or CSV.
//
// CSV has a header line with the columns id, name and, optionally, tag, in any
// order. Fields are separated by commas, semicolons or tabs. An empty field is no
// tag; an empty field in quotes ("") is an empty tag. A field in quotes may contain
// separators, line breaks and doubled quotes.

import { readId, writePlant } from './api.js';

// records yields each plant of a file, as { line, body } with the JSON text of the
// plant, or { line, problem } with a sentence; part is how much of the file was
// read, from 0 to 1. JSON is passed on as it is, so that ids stay exact; the
// service checks it.
export async function* records(file) {
  const input = new Input(file);
  try {
    for await (const record of plants(input)) yield { ...record, part: input.bytes() / Math.max(1, file.size) };
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    yield { line: error.line ?? input.line, problem: error.message };
  }
}

async function* plants(input) {
  const start = await input.peek();
  if (start === '') yield { line: 1, problem: 'The file is empty.' };
  else if (start === '[') yield* jsonArray(input);
  else if (start === '{') yield* jsonLines(input);
  else yield* csv(input);
}

// Unreadable is the reason why the rest of a file cannot be read, from a line on;
// without a line, from the current one.
class Unreadable extends Error {
  constructor(message, line) {
    super(message);
    this.line = line;
  }
}

// Input reads a file in pieces and counts its lines.
class Input {
  line = 1;
  #text = '';
  #at = 0;
  #reader;
  #decoder = new TextDecoder('utf-8', { fatal: true });
  #before = 0; // bytes before the text in memory
  #size = 0; // bytes of the text in memory

  constructor(file) {
    this.#reader = file.stream().getReader();
  }

  // bytes returns about how many bytes were taken.
  bytes() { return this.#before + this.#size * (this.#at / Math.max(1, this.#text.length)); }

  // next returns the next character (a UTF-16 unit), or '' at the end.
  async next() {
    const c = await this.look();
    this.#at++;
    if (c === '\n') this.line++;
    return c;
  }

  async look() {
    while (this.#at >= this.#text.length) if (!(await this.#read())) return '';
    return this.#text[this.#at];
  }

  // take returns what is left of the text in memory up to the first character that
  // stop matches: most of a file is read with it, without a step for each character.
  take(stop) {
    stop.lastIndex = this.#at;
    const found = stop.exec(this.#text);
    const end = found ? found.index : this.#text.length;
    const taken = this.#text.slice(this.#at, end);
    this.#at = end;
    for (let i = taken.indexOf('\n'); i >= 0; i = taken.indexOf('\n', i + 1)) this.line++;
    return taken;
  }

  // rest returns the text in memory without taking it.
  rest() { return this.#text.slice(this.#at); }

  // peek skips white space and returns the character after it.
  async peek() {
    for (;;) {
      const c = await this.look();
      if (c === '' || !' \t\r\n'.includes(c)) return c;
      await this.next();
    }
  }

  async #read() {
    const { done, value } = await this.#reader.read();
    try {
      this.#text = this.#decoder.decode(value, { stream: !done });
    } catch {
      throw new Unreadable('The file is not UTF-8 text. Save it as UTF-8 and import it again.');
    }
    this.#at = 0;
    this.#before += this.#size;
    this.#size = value?.length ?? 0;
    return !done || this.#text !== '';
  }
}

function checked(line, body, problem) {
  try {
    JSON.parse(body);
    return { line, body };
  } catch {
    return { line, problem };
  }
}

// jsonArray splits the elements at the commas outside of strings and brackets.
async function* jsonArray(input) {
  await input.next(); // [
  if ((await input.peek()) === ']') return;
  for (;;) {
    await input.peek();
    const { line } = input;
    let body = '';
    let depth = 0;
    for (;;) {
      body += input.take(/["[\]{},]/g);
      const c = await input.look();
      if (c === '') throw new Unreadable(`The file ends before the list does: the plant of line ${line} is not complete.`, line);
      if (depth === 0 && (c === ',' || c === ']')) break;
      body += await input.next();
      if (c === '"') body += await jsonString(input);
      else if (c === '[' || c === '{') depth++;
      else if (c === ']' || c === '}') depth--;
      if (depth < 0) throw new Unreadable('There is one bracket too many. What follows is not imported.');
    }
    yield checked(line, body.trim(), 'This is not valid JSON.');
    if ((await input.next()) === ']') break;
  }
  if ((await input.peek()) !== '') throw new Unreadable('The file continues after the end of the list. The rest is not imported.');
}

// jsonString returns the rest of a string, with its closing quote.
async function jsonString(input) {
  let text = '';
  for (;;) {
    text += input.take(/["\\]/g);
    const c = await input.next();
    text += c;
    if (c === '"' || c === '') return text;
    if (c === '\\') text += await input.next();
  }
}

async function* jsonLines(input) {
  while ((await input.peek()) !== '') {
    const { line } = input;
    let body = '';
    do body += input.take(/\n/g); while (!['\n', ''].includes(await input.look()));
    yield checked(line, body.trim(), 'This line is not a JSON object. In NDJSON, each line is one plant.');
  }
}

async function* csv(input) {
  const separator = await csvSeparator(input);
  const { line: top } = input;
  const first = await csvRow(input, separator);
  const head = first.map(({ text }) => text.trim().toLowerCase());
  const column = Object.fromEntries(['id', 'name', 'tag'].map((name) => [name, head.indexOf(name)]));
  if (first.misquoted || column.id < 0 || column.name < 0) {
    throw new Unreadable('This is not a JSON array, NDJSON or CSV. The first line of a CSV file names the columns id, name and tag.', top);
  }
  while ((await input.look()) !== '') {
    const { line } = input;
    const row = await csvRow(input, separator);
    if (row.misquoted) {
      const problem = `A quote is opened, and text follows the closing quote on line ${row.misquoted}. Nothing up to the end of that line is imported.`;
      yield { line, problem };
      continue;
    }
    if (row.length === 1 && row[0].text === '' && !row[0].quoted) continue; // a blank line
    if (row.length !== head.length) {
      yield { line, problem: `This line has ${row.length} fields, but the first line has ${head.length}.` };
      continue;
    }
    const typed = row[column.id].text;
    const id = readId(typed);
    const tag = row[column.tag] ?? { text: '', quoted: false };
    if (typed.trim() === '') yield { line, problem: 'The id is missing.' };
    else if (id === null) yield { line, problem: `The id must be a whole number, but is ${JSON.stringify(typed)}.` };
    else yield { line, body: writePlant({ id, name: row[column.name].text, tag: tag.text === '' && !tag.quoted ? undefined : tag.text }) };
  }
}

// csvSeparator is the first separator in the header line.
async function csvSeparator(input) {
  await input.look();
  return /^[^\n]*?([,;\t])/.exec(input.rest())?.[1] ?? ',';
}

// csvRow reads one row: the text of each field, and whether it was in quotes. A row
// with text after a closing quote ends with that line, which is row.misquoted.
async function csvRow(input, separator) {
  const { line } = input;
  const row = [];
  for (;;) {
    let text = '';
    let quoted = false;
    while (!['', '\n', separator].includes(await input.look())) {
      const c = await input.next();
      if (c === '"' && text === '' && !quoted) {
        quoted = true;
        text = await csvQuoted(input, line);
      } else if (c !== '\r' || (await input.look()) !== '\n') {
        text += c + input.take(/[\r\n,;\t]/g);
        if (quoted) row.misquoted = input.line;
      }
    }
    row.push({ text, quoted });
    while (row.misquoted && !['', '\n'].includes(await input.look())) await input.next();
    if ((await input.next()) !== separator) return row;
  }
}

async function csvQuoted(input, line) {
  let text = '';
  for (;;) {
    text += input.take(/"/g);
    const c = await input.look();
    if (c === '') throw new Unreadable('A quote is opened and not closed. The lines from here are not imported.', line);
    if (c !== '"') continue; // the next piece of the file
    await input.next();
    if ((await input.look()) !== '"') return text;
    text += await input.next();
  }
}

// ---- Writing ----

const csvField = (text) => (/[",;\t\r\n]/.test(text) || /^\s|\s$/.test(text) || text === '' ? `"${text.replaceAll('"', '""')}"` : text);

// formats writes files that records reads: before, between and after the plants.
export const formats = {
  JSON: { type: 'application/json', extension: 'json', before: '[\n', between: ',\n', after: '\n]\n', plant: writePlant },
  NDJSON: { type: 'application/x-ndjson', extension: 'ndjson', before: '', between: '\n', after: '\n', plant: writePlant },
  CSV: {
    type: 'text/csv',
    extension: 'csv',
    before: 'id,name,tag\n',
    between: '\n',
    after: '\n',
    plant: ({ id, name, tag }) => [id, csvField(name), tag === undefined ? '' : csvField(tag)].join(','),
  },
};
