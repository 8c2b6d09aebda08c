// Text of any kind and length, as a plant may have it.

import { html, useState } from './preact.js';

const LINES = 4;

// Text displays a text unchanged, isolated from the writing direction of its
// surroundings. A long text is shortened.
export function Text({ text, label, most = 240 }) {
  const [open, setOpen] = useState(false);
  if (text === '') return html`<span class="none">empty</span>`;
  if (/^[\s\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$/u.test(text)) {
    return html`<span class="none">invisible, ${counted(text.length, 'character')}</span>`;
  }
  const short = shorten(text, most);
  if (!short.cut) return html`<bdi class="text">${text}</bdi>`;
  // A scrolling box must be reachable by keyboard.
  const box = open ? { tabindex: '0', role: 'group', 'aria-label': label } : {};
  return html`<div class="long" ...${box}><bdi class="text">${open ? text : short.text}</bdi></div>
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
