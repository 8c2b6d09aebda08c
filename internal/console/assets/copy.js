// Copying a plant as its id, as JSON and as a command.

import { announce } from './notice.js';
import { escapeHidden } from './text.js';
import { writePlant } from './api.js';

// The clipboard of the browser needs HTTPS or localhost. Elsewhere the older
// command copies the selection of a field.
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const before = document.activeElement;
  const field = document.createElement('textarea');
  field.value = text;
  field.className = 'visually-hidden';
  document.body.append(field);
  field.select();
  const copied = document.execCommand('copy');
  field.remove();
  before?.focus();
  if (!copied) throw new Error('the browser refused');
  return undefined;
}

export async function copy(text, what) {
  try {
    await copyText(text);
    announce(`${what} is copied.`);
  } catch {
    announce('The browser did not allow copying. Select the text and copy it yourself.');
  }
}

export const toJSON = (plant) => escapeHidden(writePlant(plant));

// shellQuote returns a text as one word of a POSIX shell.
export const shellQuote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// curl returns the command that creates this plant. The token is a variable of the
// shell, so that the command can be shared.
export function curl(plant) {
  const address = new URL('plants', document.baseURI).href;
  return `curl ${shellQuote(address)} -H "Authorization: Bearer $PLANTSTORE_TOKEN" -H 'Content-Type: application/json' -d ${shellQuote(toJSON(plant))}`;
}

// pretty returns the JSON of a plant over several lines, with the exact id.
export function pretty({ id, name, tag }) {
  const members = [`  "id": ${id}`, `  "name": ${JSON.stringify(name)}`];
  if (tag !== undefined) members.push(`  "tag": ${JSON.stringify(tag)}`);
  return escapeHidden(`{\n${members.join(',\n')}\n}`);
}
