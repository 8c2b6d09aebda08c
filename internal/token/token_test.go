package token_test

import (
	"context"
	"errors"
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/token"
)

func TestGenerate(t *testing.T) {
	form := regexp.MustCompile(`^plant_[0-9A-Za-z]{36}$`)
	seen := map[string]bool{}
	for range 1000 {
		c := token.Generate()
		if !form.MatchString(c) || !token.WellFormed(c) || seen[c] {
			t.Fatalf("Generate() = %q", c)
		}
		seen[c] = true
	}
}

// A typo, in whatever place, is known without a look-up.
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
	for _, bad := range []string{"", "plant_", c[:len(c)-1], c + "0", strings.ToUpper(c), "plant" + c[5:] + "x", strings.Repeat("x", 64<<10)} {
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
	for _, bad := range []string{"", ",", "plants", "plants:create,plants:all"} {
		if s, err := token.ParseScopes(bad); err == nil {
			t.Errorf("ParseScopes(%q) = %v", bad, s)
		}
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"first": true, "a.b-c_9": true, "": false, "two words": false, "ü": false, "a\nb": false, strings.Repeat("x", 65): false} {
		if err := token.CheckName("token", name); (err == nil) != ok {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

// lookup is a database with one token that counts how often it is asked.
type lookup struct {
	token token.Token
	err   error
	asked atomic.Int32
}

func (l *lookup) TokenByHash(_ context.Context, hash token.Hash) (token.Token, error) {
	l.asked.Add(1)
	time.Sleep(time.Millisecond)
	switch {
	case l.err != nil:
		return token.Token{}, l.err
	case hash != l.token.Hash:
		return token.Token{}, token.ErrUnknown
	}
	return l.token, nil
}

func TestAuthenticate(t *testing.T) {
	known, credential := token.New("known", "main", token.Create, time.Now(), time.Time{})
	fixed := token.Token{Name: "fixed", Hash: token.HashOf("a-fixed-credential")}
	a := token.NewAuthenticator(&lookup{token: known}, &fixed, time.Now)
	typo := credential[:len(credential)-1] + "!"
	for _, test := range []struct {
		headers []string
		want    string
		err     error
	}{
		{nil, "", token.ErrMissing},
		{[]string{"Bearer " + credential}, "known", nil},
		{[]string{"bEARER   " + credential + " "}, "known", nil},
		{[]string{"Bearer a-fixed-credential"}, "fixed", nil},
		{[]string{"Bearer " + credential, "Bearer " + credential}, "", token.ErrMalformed},
		{[]string{""}, "", token.ErrMalformed},
		{[]string{"Bearer"}, "", token.ErrMalformed},
		{[]string{"Bearer "}, "", token.ErrMalformed},
		{[]string{"Basic " + credential}, "", token.ErrMalformed},
		{[]string{credential}, "", token.ErrMalformed},
		{[]string{"Bearer " + credential + ", Bearer x"}, "", token.ErrMalformed},
		{[]string{"Bearer " + typo}, "", token.ErrMalformed},
		{[]string{"Bearer " + credential[:20]}, "", token.ErrMistyped},
		{[]string{"Bearer " + strings.Repeat("x", 64<<10)}, "", token.ErrMistyped},
		{[]string{"Bearer " + token.Generate()}, "", token.ErrInvalid},
	} {
		got, err := a.Authenticate(t.Context(), test.headers)
		if got.Name != test.want || !errors.Is(err, test.err) {
			t.Errorf("Authenticate(%.60q) = %q, %v, want %q, %v", test.headers, got.Name, err, test.want, test.err)
		}
	}
}

func TestMistypedIsNotLookedUp(t *testing.T) {
	l := &lookup{}
	a := token.NewAuthenticator(l, nil, time.Now)
	c := token.Generate()
	for range 10 {
		a.Authenticate(t.Context(), []string{"Bearer " + c[:len(c)-2] + "xx"})
	}
	if n := l.asked.Load(); n != 0 {
		t.Errorf("%d look-ups for a wrong checksum, want none", n)
	}
}

func TestRevocationHoldsWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, credential := token.New("known", "main", token.Create, time.Now(), time.Time{})
		l := &lookup{token: known}
		a := token.NewAuthenticator(l, nil, time.Now)
		header := []string{"Bearer " + credential}
		for range 50 {
			go a.Authenticate(t.Context(), header)
		}
		synctest.Wait()
		if _, err := a.Authenticate(t.Context(), header); err != nil {
			t.Fatal(err)
		}
		if n := l.asked.Load(); n != 1 {
			t.Errorf("%d look-ups for 51 requests at once, want one", n)
		}
		l.token.Revoked = time.Now()
		time.Sleep(1999 * time.Millisecond)
		if _, err := a.Authenticate(t.Context(), header); !errors.Is(err, token.ErrRevoked) {
			t.Errorf("just under two seconds after the revocation: %v, want %v", err, token.ErrRevoked)
		}
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, credential := token.New("known", "main", token.Create, time.Now(), time.Now().Add(500*time.Millisecond))
		a := token.NewAuthenticator(&lookup{token: known}, nil, time.Now)
		header := []string{"Bearer " + credential}
		if _, err := a.Authenticate(t.Context(), header); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // what is remembered of it is still fresh
		if _, err := a.Authenticate(t.Context(), header); !errors.Is(err, token.ErrExpired) {
			t.Errorf("Authenticate() at the expiry = %v, want %v", err, token.ErrExpired)
		}
	})
}

// A database that fails is neither a yes nor a no, and is asked again next time.
func TestLookupFails(t *testing.T) {
	known, credential := token.New("known", "main", token.Create, time.Now(), time.Time{})
	down := errors.New("down")
	l := &lookup{token: known, err: down}
	a := token.NewAuthenticator(l, nil, time.Now)
	if _, err := a.Authenticate(t.Context(), []string{"Bearer " + credential}); !errors.Is(err, down) {
		t.Errorf("Authenticate() = %v, want %v", err, down)
	}
	l.err = nil
	if _, err := a.Authenticate(t.Context(), []string{"Bearer " + credential}); err != nil {
		t.Errorf("Authenticate() after the database is back = %v", err)
	}
}

// What a header is to RFC 6750, and what a credential is to us, said in another way than the parser does.
var (
	bearerForm = regexp.MustCompile(`^[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]+=*) *$`)
	tokenForm  = regexp.MustCompile(`^plant_([0-9A-Za-z]{30})([0-9A-Za-z]{6})$`)
)

// sumOf is the checksum of a credential: the CRC32 in base 62, six digits.
func sumOf(secret string) string {
	digits := new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(secret)))).Text(62)
	swapped := strings.Map(func(r rune) rune { // the library counts a…z before A…Z
		switch {
		case r >= 'a':
			return r - 'a' + 'A'
		case r >= 'A':
			return r - 'A' + 'a'
		}
		return r
	}, digits)
	return strings.Repeat("0", 6-len(swapped)) + swapped
}

// verdict is what must become of header lines where credential is the one that is known.
func verdict(headers []string, credential string) error {
	if len(headers) != 1 {
		return token.ErrMalformed
	}
	sent := bearerForm.FindStringSubmatch(headers[0])
	if sent == nil {
		return token.ErrMalformed
	}
	form := tokenForm.FindStringSubmatch(sent[1])
	switch {
	case form == nil || sumOf(form[1]) != form[2]:
		return token.ErrMistyped
	case sent[1] != credential:
		return token.ErrInvalid
	}
	return nil
}

// Each line of the input is a header line.
func FuzzBearer(f *testing.F) {
	secret := strings.Repeat("0aZ", 10) // the same in every run: the corpus holds it
	credential := "plant_" + secret + sumOf(secret)
	known := token.Token{Name: "known", Hash: token.HashOf(credential)}
	a := token.NewAuthenticator(&lookup{token: known}, nil, time.Now)
	f.Fuzz(func(t *testing.T, lines string) {
		headers := strings.Split(lines, "\n")
		want := verdict(headers, credential)
		got, err := a.Authenticate(t.Context(), headers)
		if !errors.Is(err, want) || (err == nil) != (got.Name == "known") {
			t.Fatalf("Authenticate(%q) = %q, %v, want %v", headers, got.Name, err, want)
		}
		for _, h := range headers {
			form := tokenForm.FindStringSubmatch(h)
			if want := form != nil && sumOf(form[1]) == form[2]; token.WellFormed(h) != want {
				t.Fatalf("WellFormed(%q) = %v, want %v", h, !want, want)
			}
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	known, credential := token.New("known", "main", token.Create, time.Now(), time.Time{})
	a := token.NewAuthenticator(&lookup{token: known}, nil, time.Now)
	header := []string{"Bearer " + credential}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(b.Context(), header); err != nil {
			b.Fatal(err)
		}
	}
}
