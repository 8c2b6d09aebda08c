// Forms: one submission at a time, and Enter in a text area.

import { useRef, useState } from './preact.js';

// useSubmit returns the properties of a form. Disabling the button during a
// submission would lose the keyboard focus.
export function useSubmit(submit) {
  const running = useRef(false);
  const [busy, setBusy] = useState(false);
  return {
    novalidate: true,
    'aria-busy': busy ? 'true' : null,
    async onSubmit(event) {
      event.preventDefault();
      if (running.current) return;
      running.current = true;
      setBusy(true);
      try {
        await submit(event);
      } finally {
        running.current = false;
        setBusy(false);
      }
    },
  };
}

export function submitOnEnter(event) {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    event.currentTarget.form.requestSubmit();
  }
}

// focusSoon focuses an element after the next rendering.
export function focusSoon(...selectors) {
  setTimeout(() => {
    for (const selector of selectors) {
      const found = document.querySelector(selector);
      if (found) return found.focus();
    }
    return undefined;
  });
}
