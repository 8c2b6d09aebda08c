// Failures in the words of the console. A failure without a sentence here has the
// message of the service.

import { html } from './preact.js';
import { marked } from './text.js';
import { useCountdown } from './wait.js';

const sentences = {
  40005: 'The name or tag contains an incomplete character, which cannot be stored. Type it again.',
  40009: 'Another plant has this id.',
  40014: 'The id is out of range. It must be between -9223372036854775808 and 9223372036854775807.',
  40016: 'The name or tag contains the character U+0000, which cannot be stored. Remove it.',
  40017: 'The name and tag are too long for this service. Shorten them.',
  40025: 'The id is out of range. It must be between -9223372036854775808 and 9223372036854775807.',
  40103: 'This is not a whole token. Copy it again, from the first letter to the last.',
  40104: 'This token is unknown to this server. Check the address and the token.',
  40105: 'This token has expired. Ask the operator for a new one.',
  40106: 'This token was revoked. Ask the operator for a new one.',
  40035: 'This sandbox is full. Remove plants, or reset it.',
  40301: 'This token does not allow that. Ask the operator for a token with more scopes.',
  40401: 'No plant has this id.',
  40403: 'This endpoint or delivery was removed. Refresh the list.',
  40901: 'An earlier replay of this endpoint has not ended. Try again later.',
  41201: 'Someone else changed this plant in the meantime. Your change was not saved.',
  42901: 'This token has used up its requests for now.',
  42902: 'Too many invalid tokens were sent from your network. Wait before you try again.',
  42904: 'Too many sandboxes were created from your network. Wait before you create another one.',
  42905: 'Too many requests of this sandbox wait at the same time.',
  50001: 'The service failed. If it happens again, tell the operator.',
  50301: 'The service is busy. Nothing was stored.',
  50302: 'It is unknown whether the change was stored. Refresh to check.',
  50303: 'The database is not available. Nothing was stored.',
  50304: 'The disk of the service is full. Nothing was stored.',
  50305: 'The service is restarting. Nothing was stored.',
  50307: 'There is no space for another sandbox now. Try again later.',
};

export const sentence = (failure) => sentences[failure.number] ?? failure.message;

// reason is the sentence for a plant of a file, where the message of the service
// says more precisely which part is wrong.
export const reason = (failure) => (/^400(0[1-8]|1[0-6])$/.test(failure.number) ? capitalized(failure.message) : sentence(failure));

const capitalized = (text) => (/^(id|name|tag) /.test(text) ? `The ${text}` : text[0].toUpperCase() + text.slice(1)) + '.';

// FailureView shows a failure with its numbers, which the operator may ask for,
// and the seconds until a retry can succeed, or until the page continues by itself.
export function FailureView({ failure, explain, continues, children }) {
  const again = continues ? 'Continuing' : 'Try again';
  const seconds = useCountdown(failure);
  const detail = [];
  if (failure.status) detail.push(`Status ${failure.status}`);
  if (failure.number) detail.push(`error ${failure.number}`);
  if (failure.status >= 500 && failure.request) detail.push(`request ${failure.request}`);
  return html`<div class="failure">
    ${explain && html`<p class="explain">${explain}</p>`}
    <p><bdi>${marked(sentence(failure))}</bdi>${failure.retryAfter > 0 && html`${' '}<span class="retry">${
      `${again} ${seconds > 0 ? `in ${seconds} s` : 'now'}.`}</span>`}</p>
    ${detail.length > 0 && html`<p class="detail">${detail.join(' · ')}</p>`}
    ${children && html`<p class="actions">${children}</p>`}
  </div>`;
}
