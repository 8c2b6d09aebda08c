package plant

import (
	"strings"
	"unicode"
)

// Filter selects plants. The zero value selects all.
type Filter struct {
	tag  *string // nil: any tag or none
	text string  // folded; empty: any text
}

// NewFilter returns a Filter of plants whose tag is equal to tag, if that is not nil, and whose name or tag contains
// text, ignoring case. An empty text is contained in every plant.
func NewFilter(tag *string, text string) Filter { return Filter{tag, strings.Map(fold, text)} }

// All reports whether the filter selects every plant.
func (f Filter) All() bool { return f.tag == nil && f.text == "" }

// Match reports whether the filter selects a plant.
func (f Filter) Match(p Content) bool {
	if f.tag != nil && (p.Tag == nil || *p.Tag != *f.tag) {
		return false
	}
	return f.text == "" || strings.Contains(strings.Map(fold, p.Name), f.text) ||
		p.Tag != nil && strings.Contains(strings.Map(fold, *p.Tag), f.text)
}

// fold returns the same character for all characters that differ only in case, by the simple case folding of Unicode:
// the smallest of them. It depends on no language, and a character never becomes several.
func fold(r rune) rune {
	smallest := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		smallest = min(smallest, other)
	}
	return smallest
}
