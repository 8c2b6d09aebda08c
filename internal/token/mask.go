package token

import (
	"regexp"
	"strings"
)

// Mask hides whole credentials in texts for the log: a client may have sent one in the wrong place, such as the path.
// The zero Mask hides credentials of the form that Generate returns, and JWTs.
//
// Do not use it for responses: a client could find out whether a text contains the fixed credential.
type Mask struct{ fixed string }

// NewMask returns a Mask that also hides a fixed credential, which can have any form. "" means none.
func NewMask(fixed string) Mask { return Mask{fixed} }

var (
	generated = regexp.MustCompile(prefix + `[0-9A-Za-z]{20,}`)
	jwts      = regexp.MustCompile(`eyJ[\w-]{8,}(\.[\w-]*)*`)
)

// Hide returns text with "…" in place of each credential.
func (m Mask) Hide(text string) string {
	if m.fixed != "" {
		text = strings.ReplaceAll(text, m.fixed, "…")
	}
	if strings.Contains(text, prefix) {
		text = generated.ReplaceAllString(text, prefix+"…")
	}
	if strings.Contains(text, "eyJ") {
		text = jwts.ReplaceAllString(text, "eyJ…")
	}
	return text
}
