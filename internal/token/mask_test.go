package token_test

import (
	"testing"

	"plantstore/internal/token"
)

// Whole credentials are hidden, and no part of a fixed one: what is hidden must not tell which texts are parts of it.
func TestMask(t *testing.T) {
	const fixed = "a-fixed~token/16+"
	const issued = "plant_0123456789abcdefghij"
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl-_"
	for text, want := range map[string]string{
		"":                            "",
		"plant_ plant_short":          "plant_ plant_short",
		issued[:25]:                   issued[:25],
		"x" + issued + "-y":           "xplant_…-y",
		"?t=" + jwt + "&x":            "?t=eyJ…&x",
		"/" + jwt[:40] + " " + jwt:    "/eyJ… eyJ…",
		"eyJ":                         "eyJ",
		issued + " " + issued + "KLM": "plant_… plant_…",
		"/x/" + fixed + "/y":          "/x/…/y",
		fixed + fixed:                 "……",
		fixed[:16]:                    fixed[:16],
		"x" + fixed[1:]:               "x" + fixed[1:],
		"A-FIXED~TOKEN/16+":           "A-FIXED~TOKEN/16+",
	} {
		if got := token.NewMask(fixed).Hide(text); got != want {
			t.Errorf("Hide(%q) = %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{fixed: fixed, issued: "plant_…", "x": "x"} {
		if got := (token.Mask{}).Hide(text); got != want {
			t.Errorf("Hide(%q) = %q without a fixed credential, want %q", text, got, want)
		}
	}
}
