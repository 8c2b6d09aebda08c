package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/token"
)

func TestTokenUpdate(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	issue(t, db, "--name", "ci", "--rate", "30/m", "--burst", "4")
	before := tokensOf(t, db)[0]
	const day = 24 * time.Hour
	limit := func(count, burst int64) rate.Limit { return rate.Limit{Count: count, Per: time.Second, Burst: burst} }
	for _, test := range []struct {
		args   string
		change func(*token.Token)
	}{
		{"--scopes plants:read", func(t *token.Token) { t.Scopes = token.Read }},
		{"--rate 100/s", func(t *token.Token) { t.Rate = limit(100, 100) }},
		{"--burst 7", func(t *token.Token) { t.Rate = limit(100, 7) }},
		{"--rate 9/s --burst 20", func(t *token.Token) { t.Rate = limit(9, 20) }},
		{"--burst 0", func(t *token.Token) { t.Rate = limit(9, 9) }},
		{"--rate none", func(t *token.Token) { t.Rate = rate.Limit{} }},
		{"--scopes plants:create --rate 5/s --expires 90d", func(tok *token.Token) {
			tok.Scopes, tok.Rate = token.Create, limit(5, 5)
			if tok.Expires = tokensOf(t, db)[0].Expires; time.Until(tok.Expires).Round(day) != 90*day {
				t.Errorf("expires at %v, want in 90 days", tok.Expires)
			}
		}},
		{"--expires never", func(t *token.Token) { t.Expires = time.Time{} }},
	} {
		args := append([]string{"token", "update", "--db", db, "ci"}, strings.Fields(test.args)...)
		plantstore(t, nil, args...).want(t, test.args, 0, "", "")
		test.change(&before)
		if got := tokensOf(t, db); len(got) != 1 || got[0] != before {
			t.Errorf("after %s: %+v, want %+v", test.args, got, before)
		}
	}
	issue(t, db, "--name", "old")
	plantstore(t, nil, "token", "revoke", "--db", db, "old").want(t, "revoke", 0, "", "")
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"ci", 2, "nothing to change: use --scopes, --rate, --burst or --expires"},
		{"ci --scopes all", 2, `scope "all" is unknown`},
		{"ci --rate fast", 2, `rate "fast" is invalid`},
		{"ci --rate none --burst 3", 2, "a burst needs a rate"},
		{"ci --burst -3", 2, "burst -3 is invalid"},
		{"ci --burst x", 2, `--burst is "x"`},
		{"ci --expires soon", 2, `--expires is "soon": use a time such as 90d`},
		{"cd --rate 1/s", 3, `no such token: "cd"; see plantstore token list`},
		{"old --rate 1/s", 1, `token "old" is revoked; use plantstore token issue with another name`},
	} {
		got := plantstore(t, nil, append([]string{"token", "update", "--db", db}, strings.Fields(test.args)...)...)
		if got.code != test.code || got.stdout != "" || !strings.Contains(got.stderr, test.want) ||
			strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("token update %s: %+v, want exit %d and %s", test.args, got, test.code, test.want)
		}
	}
	if got := tokensOf(t, db); len(got) != 2 || got[0] != before {
		t.Errorf("after commands that failed: %+v, want %+v", got, before)
	}
}

func TestTokenRotate(t *testing.T) {
	long := strings.Repeat("n", 64)
	for _, test := range []struct {
		name, issued, rotated string
		overlap               time.Duration // until the old one expires
		lifetime              time.Duration // of the new one
	}{
		{"ci", "", "", 24 * time.Hour, 0},
		{"ci", "--expires 90d", "--overlap 7d", 7 * 24 * time.Hour, 90 * 24 * time.Hour},
		{"ci", "--expires 2h", "--overlap 1h", time.Hour, 2 * time.Hour},
		{"ci", "--expires 2h", "--expires 90d", 2 * time.Hour, 90 * 24 * time.Hour},
		{"ci", "--expires 2h", "--expires never", 2 * time.Hour, 0},
		{"ci", "--expires 2h", "--overlap 0s --expires 90d", 0, 90 * 24 * time.Hour},
		{long, "", "--overlap 30m --expires 1h", 30 * time.Minute, time.Hour},
	} {
		db := filepath.Join(t.TempDir(), "plants.db")
		old := issue(t, db, append(strings.Fields(test.issued), "--name", test.name, "--store", "shop",
			"--scopes", "plants:read", "--rate", "30/m")...)
		before := tokensOf(t, db)[0]
		args := append([]string{"token", "rotate", "--db", db, test.name}, strings.Fields(test.rotated)...)
		start := time.Now().Truncate(time.Millisecond)
		got := plantstore(t, nil, args...)
		credential := strings.TrimSpace(got.stdout)
		all := tokensOf(t, db)
		if got.code != 0 || !strings.HasPrefix(credential, "plant_") || credential == old || len(all) != 2 {
			t.Fatalf("%q: %+v, %+v", args, got, all)
		}
		name := test.name[:min(len(test.name), 59)] + "." + old[len(old)-4:]
		if want := "The old token is now named " + name + " and expires at " + timestamp(all[0].Expires) +
			" UTC.\n"; got.stderr != want {
			t.Errorf("%q printed %q, want %q", args, got.stderr, want)
		}
		want := before
		want.Name, want.Expires = name, all[0].Expires
		if left := all[0].Expires.Sub(start); all[0] != want || left.Round(time.Minute) != test.overlap {
			t.Errorf("%q: the old token is %+v, which expires in %v, want %v", args, all[0], left, test.overlap)
		}
		next := all[1]
		want = before
		want.Hash, want.Tail, want.Created, want.Expires = token.HashOf(credential), next.Tail, next.Created, next.Expires
		if next != want || next.Created.Before(start) || (test.lifetime == 0) != next.Expires.IsZero() {
			t.Errorf("%q: the new token is %+v, want %+v", args, next, want)
		}
		if lifetime := next.Expires.Sub(next.Created); test.lifetime != 0 && lifetime.Round(time.Minute) != test.lifetime {
			t.Errorf("%q: the lifetime of the new token is %v, want %v", args, lifetime, test.lifetime)
		}
		if err := token.CheckName("token", all[0].Name); err != nil {
			t.Error(err)
		}
	}
	db := filepath.Join(t.TempDir(), "plants.db")
	old := issue(t, db, "--name", "ci")
	name := "ci." + old[len(old)-4:]
	issue(t, db, "--name", name)
	plantstore(t, nil, "token", "rotate", "--db", db, "ci").want(t, "a name that exists", 4, "",
		"plantstore token rotate: "+
			token.ErrNameTaken.Error()+": \""+name+"\"; run plantstore token issue with a new name instead\n")
	for _, flags := range [][]string{{"--overlap", "-1h"}, {"--overlap", "soon"}, {"--expires", "0d"}} {
		got := plantstore(t, nil, append([]string{"token", "rotate", "--db", db, "ci"}, flags...)...)
		if got.code != 2 || !strings.Contains(got.stderr, flags[0]+" is \""+flags[1]+"\"") {
			t.Errorf("token rotate %q: %+v", flags, got)
		}
	}
	issue(t, db, "--name", "short", "--expires", "2h")
	issue(t, db, "--name", "gone", "--expires", "1ms")
	for _, args := range [][]string{{"short"}, {"short", "--overlap", "3h"}, {"gone", "--overlap", "0s"}} {
		got := plantstore(t, nil, append([]string{"token", "rotate", "--db", db}, args...)...)
		if got.code != 2 || !strings.Contains(got.stderr, "before the overlap ends: use --expires") {
			t.Errorf("token rotate %q: %+v", args, got)
		}
	}
	if got := tokensOf(t, db); len(got) != 4 {
		t.Errorf("tokens after commands that failed: %+v", got)
	}
}

// A credential that cannot be printed is lost.
func TestTokenNotPrinted(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	toFullDisk(t, nil, "token", "issue", "--db", db, "--name", "a")
	toFullDisk(t, nil, "token", "rotate", "--db", db, "a")
}

func TestTokenListExpiring(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	for name, expires := range map[string]string{
		"never": "never", "gone": "1ms", "days": "85h", "minutes": "119m", "weeks": "20d", "year": "365d",
	} {
		issue(t, db, "--name", name, "--expires", expires)
	}
	issue(t, db, "--name", "revoked", "--expires", "1d")
	plantstore(t, nil, "token", "revoke", "--db", db, "revoked").want(t, "revoke", 0, "", "")
	within := plantstore(t, nil, "token", "list", "--db", db, "--expiring", "30d").stdout
	for name, want := range map[string]bool{
		"never": false, "gone": false, "days": true, "minutes": true, "weeks": true, "year": false, "revoked": false,
	} {
		if listed := strings.Contains(within, "\n"+name); listed != want {
			t.Errorf("token list --expiring 30d has %s: %v\n%s", name, listed, within)
		}
	}
	if got := plantstore(t, nil, "token", "list", "--db", db, "--expiring", "x"); got.code != 2 {
		t.Errorf("--expiring x: %+v", got)
	}
}
