package plant_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"plantstore/internal/plant"
)

func TestFilter(t *testing.T) {
	for _, test := range []struct {
		name string
		tag  *string
		q    string
		want bool
	}{
		{"Monstera", nil, "", true},
		{"Monstera", nil, "mon", true},
		{"Monstera", nil, "monstera ", false},
		{"Monstera", new("climber"), "CLIMB", true},
		{"Monstera", new("climber"), "raclim", false}, // not across the two
		{"", nil, "x", false},
		{"STRAẞE", nil, "straße", true},      // ẞ and ß are one letter each
		{"straße", nil, "strasse", false},    // and not two
		{"300 \u212a", nil, "300 k", true},   // the Kelvin sign
		{"ΟΔΟΣ", nil, "οδος", true},          // the final sigma
		{"İstanbul", nil, "istanbul", false}, // İ has no simple folding to i
		{"ılık", nil, "ILIK", false},         // nor ı to I
		{"ǅ", nil, "ǆ", true},                // title case
		{"cactus 🌵", nil, "S 🌵", true},
		{"caf\u00e9", nil, "cafe\u0301", false}, // no normalisation
		{"ﬁg", nil, "fig", false},
		{"a\\b%_", nil, "\\B%_", true},
	} {
		p := plant.Content{Name: test.name, Tag: test.tag}
		if got := plant.NewFilter(nil, test.q).Match(p); got != test.want {
			t.Errorf("%q matches %s: %v, want %v", test.q, p.AppendJSON(nil), got, test.want)
		}
	}
	for _, test := range []struct {
		tag, filter *string
		want        bool
	}{
		{nil, nil, true}, {new("a"), nil, true}, {nil, new(""), false}, {nil, new("a"), false}, {new(""), new(""), true},
		{new("a"), new("a"), true}, {new("A"), new("a"), false}, {new("ab"), new("a"), false}, {new(""), new("a"), false},
	} {
		p := plant.Content{Name: "a", Tag: test.tag}
		if got := plant.NewFilter(test.filter, "").Match(p); got != test.want {
			t.Errorf("the tag filter of %s: %v, want %v", p.AppendJSON(nil), got, test.want)
		}
	}
	both := plant.NewFilter(new("shade"), "FERN")
	for want, p := range map[bool]plant.Content{true: {"Tree fern", new("shade")}, false: {"Tree fern", new("sun")}} {
		if both.Match(p) != want {
			t.Errorf("both filters select %s: %v", p.AppendJSON(nil), !want)
		}
	}
	if both.Match(plant.Content{Name: "Ivy", Tag: new("shade")}) {
		t.Error("a plant with the tag but without the text is selected")
	}
	if !plant.NewFilter(nil, "").All() || plant.NewFilter(new(""), "").All() || plant.NewFilter(nil, "x").All() {
		t.Error("only the empty filter selects all plants")
	}
}

// A text is found wherever strings.EqualFold finds it.
func TestFilterFindsText(t *testing.T) {
	letters := rapid.StringOf(rapid.SampledFrom([]rune("aAbkK\u212asSſßẞσςΣiIıİéÉǄǅǆΩ\u2126🌵 ")))
	rapid.Check(t, func(t *rapid.T) {
		name, q := letters.Draw(t, "name"), letters.Draw(t, "q")
		want := false
		runes, length := []rune(name), len([]rune(q))
		for i := 0; i+length <= len(runes); i++ {
			want = want || strings.EqualFold(string(runes[i:i+length]), q)
		}
		if got := plant.NewFilter(nil, q).Match(plant.Content{Name: name}); got != want {
			t.Errorf("%q matches %q: %v, want %v", q, name, got, want)
		}
	})
}
