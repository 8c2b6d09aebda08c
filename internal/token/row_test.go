package token_test

import (
	"strings"
	"testing"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/token"
)

func TestRow(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	full, _ := token.New("full", "other", token.Create|token.Write, at, at.Add(time.Hour))
	full.Revoked = at.Add(time.Minute)
	full.Rate = rate.Limit{Count: 30, Per: time.Minute, Burst: 7}
	bare, _ := token.New("bare", "main", token.Read, at, time.Time{})
	for _, want := range []token.Token{full, bare, {}} {
		got, err := want.Row().Token()
		if err != nil || got != want {
			t.Errorf("the row of %+v reads as %+v, %v", want, got, err)
		}
	}
	if r := bare.Row(); r.Expires != nil || r.Revoked != nil || r.Rate != nil || r.Burst != nil {
		t.Errorf("Row() = %+v, want NULL for what the token does not have", r)
	}
	r := full.Row()
	if r.Scopes != "plants:create plants:write" || *r.Rate != "30/m" || *r.Burst != 7 || r.Created != 1_700_000_000_123 {
		t.Errorf("Row() = %+v", r)
	}
	*r.Rate = "30/x"
	if _, err := r.Token(); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("Token() of a row with the rate 30/x = %v, want an error that names the token", err)
	}
}
