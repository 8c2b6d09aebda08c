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

// Hide returns text with "…" in place of each credential.
func (m Mask) Hide(text string) string {
	if m.fixed != "" {
		text = strings.ReplaceAll(text, m.fixed, "…")
	}
	for _, credential := range credentials {
		text = credential.ReplaceAllString(text, "$1…")
	}
	return text
}

// credentials match those that Generate returns, and JWTs. The time of a match is linear: clients choose the text.
var credentials = []*regexp.Regexp{
	regexp.MustCompile(`(plant_)[0-9A-Za-z]{20,}`), regexp.MustCompile(`(eyJ)[\w.-]{8,}`),
}
