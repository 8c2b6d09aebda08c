package token_test

import (
	"fmt"
	"strings"
	"testing"

	"plantstore/internal/token"
)

func TestMask(t *testing.T) {
	const fixed = "a-fixed~token/16+"
	const issued = "plant_0123456789abcdefghij"
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl-_"
	encoded := ""
	for _, c := range fixed {
		encoded += fmt.Sprintf("%%25%02X", c)
	}
	for text, want := range map[string]string{
		"":                              "",
		"plain 100% of %zz and %4":      "plain 100% of %zz and %4",
		"plant_ plant_short":            "plant_ plant_short",
		issued[:25]:                     issued[:25],
		"x" + issued + "-y":             "xplant_…-y",
		"?t=" + jwt + "&x":              "?t=eyJ…&x",
		"/" + jwt[:40] + " " + jwt:      "/eyJ… eyJ…",
		"eyJ":                           "eyJ",
		issued + " " + issued + "KLM":   "plant_… plant_…",
		fixed:                           "…",
		"/x/" + fixed + "/y":            "/x/…/y",
		fixed + fixed:                   "……",
		"x " + fixed + " y" + fixed:     "x … y…",
		fixed[:8]:                       "…", // excerpts of it
		fixed[:7]:                       "a-fixed",
		"x" + fixed[9:]:                 "x…",
		"x" + fixed[10:]:                "x" + fixed[10:],
		"x" + fixed[3:12] + "y":         "x…y",
		"A-FIXED~TOKEN/16+":             "A-FIXED~TOKEN/16+",
		"/a-fixed%7Etoken%2f16%2B?":     "/…?",
		"/%61-fixed%257etoken%25252F16": "/…",
		"/" + encoded + "%20":           "/…%20",
		"%a-fixed~t":                    "%…",
		"a-fixed%7":                     "a-fixed%7",
		"%25a-fixed~token/16+%25":       "%25…%25",
	} {
		if got := token.NewMask(fixed).Hide(text); got != want {
			t.Errorf("Hide(%q) = %q, want %q", text, got, want)
		}
		if got, want := (token.Mask{}).Hide(text), text; !strings.Contains(text, issued) && !strings.Contains(text, jwt) &&
			got != want {
			t.Errorf("Hide(%q) = %q without a fixed credential", text, got)
		}
	}
	if got := (token.Mask{}).Hide(issued); got != "plant_…" {
		t.Errorf("Hide(%q) = %q without a fixed credential", issued, got)
	}
}
