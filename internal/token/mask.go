package token

import "strings"

// Mask hides whole credentials in texts for the log: a client may have sent one in the wrong place, such as the path.
// The zero Mask hides credentials of the form that Generate returns, and JWTs.
//
// Do not use it for responses: a client could find out whether a text contains the fixed credential.
type Mask struct{ fixed string }

// NewMask returns a Mask that also hides a fixed credential, which can have any form. "" means none.
func NewMask(fixed string) Mask { return Mask{fixed} }

// Hide returns text with "…" in place of each credential.
func (m Mask) Hide(text string) string {
	if m.fixed != "" {
		text = strings.ReplaceAll(text, m.fixed, "…")
	}
	text = hide(text, prefix, base62, 20)
	return hide(text, "eyJ", base62+"_-.", 8)
}

// hide replaces the characters that follow each prefix, if they are at least so many. Its time is linear: clients
// choose the text.
func hide(text, prefix, characters string, least int) string {
	if !strings.Contains(text, prefix) {
		return text
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, prefix)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString(prefix)
		text = strings.TrimLeftFunc(rest, func(r rune) bool { return strings.ContainsRune(characters, r) })
		if len(rest)-len(text) >= least {
			b.WriteString("…")
		} else {
			text = rest
		}
	}
}
