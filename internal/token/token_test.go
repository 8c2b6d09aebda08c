package token_test

import (
	"strings"
	"testing"
	"time"

	"plantstore/internal/token"
)

// Every character of a secret is equally likely: with a bias a credential would have fewer than 178 bits.
func TestSecretsAreUniform(t *testing.T) {
	const credentials, mean = 4000, 4000 * 30 / 62
	counts := map[rune]int{}
	for range credentials {
		c := token.Generate()
		if !strings.HasPrefix(c, "plant_") || len(c) != 42 || !token.WellFormed(c) {
			t.Fatalf("Generate() = %q", c)
		}
		for _, r := range c[len("plant_"):][:30] {
			counts[r]++
		}
	}
	if len(counts) != 62 {
		t.Errorf("%d different characters, want 62", len(counts))
	}
	for r, n := range counts {
		if n < mean-270 || n > mean+270 { // more than six standard deviations
			t.Errorf("%q occurs %d times, want about %d", r, n, mean)
		}
	}
}

func TestNew(t *testing.T) {
	now := time.Now()
	got, credential := token.New("ci", "other", token.Read, now, now.Add(time.Hour))
	if want := (token.Token{
		Name: "ci", Hash: token.HashOf(credential), Store: "other", Scopes: token.Read,
		Tail: credential[len("plant_")+32:], Created: now, Expires: now.Add(time.Hour),
	}); got != want || !token.WellFormed(credential) {
		t.Errorf("New() = %+v, %q, want %+v", got, credential, want)
	}
}

// A typo in any position is detected.
func TestChecksum(t *testing.T) {
	c := token.Generate()
	for i := len("plant_"); i < len(c); i++ {
		for _, r := range "0aZ" {
			typo := c[:i] + string(r) + c[i+1:]
			if typo != c && token.WellFormed(typo) {
				t.Errorf("WellFormed(%q) of a typo in %q", typo, c)
			}
		}
	}
	for _, bad := range []string{
		"", "plant_", c[:len(c)-1], c + "0", c[6:], strings.ToUpper(c), "plant" + c[5:] + "x", strings.Repeat("x", 64<<10),
	} {
		if token.WellFormed(bad) {
			t.Errorf("WellFormed(%.50q)", bad)
		}
	}
}

func TestScopes(t *testing.T) {
	s, err := token.ParseScopes("plants:write, plants:create")
	if err != nil || s != token.Create|token.Write || s.String() != "plants:create plants:write" {
		t.Errorf("ParseScopes() = %q, %v", s, err)
	}
	const plants = "plants:create plants:read plants:write"
	if got := token.PlantScopes.String(); got != plants {
		t.Errorf("PlantScopes = %q, want %q", got, plants)
	}
	if got, want := token.AllScopes.String(), plants+" webhooks:manage"; got != want {
		t.Errorf("AllScopes = %q, want %q", got, want)
	}
	for _, bad := range []string{"", ",", "plants", "plants:create,plants:all"} {
		if s, err := token.ParseScopes(bad); err == nil || s != 0 {
			t.Errorf("ParseScopes(%q) = %q, %v, want an error", bad, s, err)
		}
	}
}

func TestStoredScopes(t *testing.T) {
	for text, want := range map[string]token.Scope{
		"": 0, "plants:read": token.Read, "plants:create plants:future plants:write": token.Create | token.Write,
	} {
		if got := token.StoredScopes(text); got != want {
			t.Errorf("StoredScopes(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"first": true, "a.b-c_9": true, strings.Repeat("x", 64): true,
		"": false, "two words": false, "ü": false, "a\nb": false, strings.Repeat("x", 65): false,
	} {
		if err := token.CheckName("token", name); (err == nil) != ok {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
	const reserved = "sandbox:q3hyn7kxw5v2t6zrd4mbcj3pae"
	if err := token.CheckName("store", reserved); err == nil || !strings.Contains(err.Error(), "reserved for a sandbox") {
		t.Errorf("CheckName of the store of a sandbox = %v", err)
	}
}
