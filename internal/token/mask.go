package token

import (
	"regexp"
	"strconv"
	"strings"
)

// Mask hides credentials in texts for the log and for responses: a client may have sent one in the wrong place, such as
// the path. The zero Mask hides credentials of the form that Generate returns, and JWTs.
type Mask struct{ fixed string }

// NewMask returns a Mask that also hides a fixed credential, which can have any form. "" means none.
func NewMask(fixed string) Mask { return Mask{fixed} }

// minPart is the length of the shortest part of a fixed credential that is hidden: an excerpt may not have all of it.
const minPart = 8

var (
	generated = regexp.MustCompile(prefix + `[0-9A-Za-z]{20,}`)
	jwts      = regexp.MustCompile(`eyJ[\w-]{8,}(\.[\w-]*)*`)
)

// Hide returns text with "…" in place of each credential, and of each part of a fixed one, percent-encoded or not.
func (m Mask) Hide(text string) string {
	if strings.Contains(text, prefix) {
		text = generated.ReplaceAllString(text, prefix+"…")
	}
	if strings.Contains(text, "eyJ") {
		text = jwts.ReplaceAllString(text, "eyJ…")
	}
	if m.fixed == "" {
		return text
	}
	decoded, offsets := percentDecode(text)
	var b strings.Builder
	end := 0 // of the text that has been copied to b or hidden
	for i := 0; i < len(decoded); {
		n := m.part(decoded[i:])
		if n == 0 {
			i++
			continue
		}
		b.WriteString(text[end:offsets[i]] + "…")
		i += n
		end = offsets[i]
	}
	return b.String() + text[end:]
}

// part returns the length of the longest part of the fixed credential at the start of text, or 0.
func (m Mask) part(text string) int {
	n := min(minPart, len(m.fixed))
	if len(text) < n || !strings.Contains(m.fixed, text[:n]) {
		return 0
	}
	for n < len(text) && strings.Contains(m.fixed, text[:n+1]) {
		n++
	}
	return n
}

// percentDecode decodes percent-encoding, also where it was applied several times (%2561). The offsets of the decoded
// bytes in text end with the length of text.
func percentDecode(text string) (decoded string, offsets []int) {
	var b strings.Builder
	for i := 0; i < len(text); {
		offsets = append(offsets, i)
		c, next := text[i], i+1
		for digits := i + 1; c == '%' && digits+2 <= len(text); digits += 2 {
			n, err := strconv.ParseUint(text[digits:digits+2], 16, 8)
			if err != nil {
				break
			}
			c, next = byte(n), digits+2
		}
		b.WriteByte(c)
		i = next
	}
	return b.String(), append(offsets, len(text))
}
