// Text of any kind and length, as a plant may have it.

import { html, useState } from './preact.js';

const LINES = 4;

// hidden matches characters that have no shape of their own, and could make a text
// look like another one: control characters except tabs and line breaks, those that
// change the writing direction, and others that have no width. Emoji and some scripts
// need joiners, so joiners after a character that is not ASCII are not matched.
const hidden = /((?![\t\n\r])(?!(?<=\P{ASCII})[\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}])/gu;

// marked returns a text for display, with a visible mark such as U+202E in place of
// each hidden character.
export const marked = (text) => text.split(hidden).map((part, i) => (i % 2 === 0 ? part
  : html`<span class="mark">U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}</span>`));

export const hasHidden = (text) => text.search(hidden) >= 0;

// escapeHidden returns the same JSON with hidden characters as \uXXXX.
export const escapeHidden = (json) => json.replace(hidden, (c) => c.split('').map((unit) =>
  `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''));

// Text displays a text with its hidden characters marked, isolated from the writing
// direction of its surroundings. A long text is shortened.
// With wrap, what is displayed of the text is wrap of it.
export function Text({ text, label, most = 240, wrap = (content) => content }) {
  const [open, setOpen] = useState(false);
  if (text === '') return wrap(html`<span class="none">empty</span>`);
  if (/^[\s\u200c\u200d]*$/.test(text)) {
    return wrap(html`<span class="none">invisible, ${counted(text.length, 'character')}</span>`);
  }
  const short = shorten(text, most);
  if (!short.cut) return wrap(html`<bdi class="text">${marked(text)}</bdi>`);
  // A scrolling box must be reachable by keyboard.
  const box = open ? { tabindex: '0', role: 'group', 'aria-label': label } : {};
  return html`<div class="long" ...${box}>${wrap(html`<bdi class="text">${marked(open ? text : short.text)}</bdi>`)}</div>
    <button type="button" class="link" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>
      ${open ? 'Show less' : `Show all ${counted(text.length, 'character')}`}</button>`;
}

export function shorten(text, most) {
  let end = Math.min(text.length, most);
  for (let i = 0, lines = 1; i < end; i++) {
    if (text[i] === '\n' && ++lines > LINES) end = i;
  }
  if (end === text.length) return { text, cut: false };
  if (/[\ud800-\udbff]/.test(text[end - 1])) end--; // keep surrogate pairs together
  return { text: text.slice(0, end) + '…', cut: true };
}

// counted returns a number with its noun, such as "1,000 plants".
export const counted = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;
