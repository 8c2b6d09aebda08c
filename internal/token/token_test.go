package token_test

import (
	"context"
	"errors"
	"hash/crc32"
	"math/big"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/rate"
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

// from is a client's address.
type from string

func (f from) Address() netip.Addr { return netip.MustParseAddr(string(f)) }

const here = from("192.0.2.1")

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
		got, err := a.Authenticate(t.Context(), test.headers, here)
		if !errors.Is(err, test.err) || err == nil && got.Name != test.want {
			t.Errorf("Authenticate(%.60q) = %v, %v, want %q, %v", test.headers, got, err, test.want, test.err)
		}
	}
}

func TestMistypedIsNotLookedUp(t *testing.T) {
	l := &lookup{}
	a := token.NewAuthenticator(l, nil, time.Now)
	c := token.Generate()
	end := "xx"
	if strings.HasSuffix(c, end) {
		end = "yy"
	}
	for range 10 {
		a.Authenticate(t.Context(), []string{"Bearer " + c[:len(c)-2] + end}, here)
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
			go a.Authenticate(t.Context(), header, here)
		}
		synctest.Wait()
		if _, err := a.Authenticate(t.Context(), header, here); err != nil {
			t.Fatal(err)
		}
		if n := l.asked.Load(); n != 1 {
			t.Errorf("%d look-ups for 51 requests at once, want one", n)
		}
		l.token.Revoked = time.Now()
		time.Sleep(1999 * time.Millisecond)
		if _, err := a.Authenticate(t.Context(), header, here); !errors.Is(err, token.ErrRevoked) {
			t.Errorf("just under two seconds after the revocation: %v, want %v", err, token.ErrRevoked)
		}
	})
}

// slow is a database that answers with what it had when it was asked, a while ago.
type slow struct {
	lookup
	takes time.Duration
}

func (s *slow) TokenByHash(ctx context.Context, hash token.Hash) (token.Token, error) {
	found, err := s.lookup.TokenByHash(ctx, hash)
	time.Sleep(s.takes)
	return found, err
}

// Who joins a look-up that began before the revocation is not let in by it, however long it takes.
func TestRevocationHoldsThoughLookupsAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, credential := token.New("known", "main", token.Create, time.Now(), time.Time{})
		l := &slow{lookup: lookup{token: known}}
		a := token.NewAuthenticator(l, nil, time.Now)
		if _, err := a.Authenticate(t.Context(), bearer(credential), here); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		l.takes = 4 * time.Second
		var waiting sync.WaitGroup
		ask := func(want error) {
			waiting.Go(func() {
				if _, err := a.Authenticate(t.Context(), bearer(credential), here); !errors.Is(err, want) {
					t.Errorf("Authenticate() = %v, want %v", err, want)
				}
			})
		}
		ask(nil)
		time.Sleep(500 * time.Millisecond)
		ask(nil) // at once with the first, nearly
		synctest.Wait()
		l.token.Revoked = time.Now()
		time.Sleep(1999 * time.Millisecond)
		for range 10 {
			ask(token.ErrRevoked)
		}
		waiting.Wait()
		if n := l.asked.Load(); n != 3 {
			t.Errorf("%d look-ups, want one at first, one that was too early, and one for all who came late", n)
		}
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, credential := token.New("known", "main", token.Create, time.Now(), time.Now().Add(500*time.Millisecond))
		a := token.NewAuthenticator(&lookup{token: known}, nil, time.Now)
		header := []string{"Bearer " + credential}
		if _, err := a.Authenticate(t.Context(), header, here); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // what is remembered of it is still fresh
		if _, err := a.Authenticate(t.Context(), header, here); !errors.Is(err, token.ErrExpired) {
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
	if _, err := a.Authenticate(t.Context(), []string{"Bearer " + credential}, here); !errors.Is(err, down) {
		t.Errorf("Authenticate() = %v, want %v", err, down)
	}
	l.err = nil
	if _, err := a.Authenticate(t.Context(), []string{"Bearer " + credential}, here); err != nil {
		t.Errorf("Authenticate() after the database is back = %v", err)
	}
}

func bearer(credential string) []string { return []string{"Bearer " + credential} }

// drain fails until an address is answered without a look-up, and returns how often that took.
func drain(t *testing.T, a *token.Authenticator, address from) int {
	t.Helper()
	for n := range 1000 {
		_, err := a.Authenticate(t.Context(), bearer(token.Generate()), address)
		if errors.Is(err, token.ErrFailures) {
			return n
		}
		if !errors.Is(err, token.ErrInvalid) {
			t.Fatal(err)
		}
	}
	t.Fatalf("1000 wrong credentials from %s were all looked up", address)
	panic("unreachable")
}

// Wrong credentials from one address are soon answered without a look-up. Who is known is not harmed,
// though he comes from the same address and what is believed of him is no longer fresh; nor is any other address.
func TestFailuresAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, credential := token.New("known", "main", token.Create, time.Now(), time.Time{})
		fixed := token.Token{Name: "fixed", Hash: token.HashOf("a-fixed-credential")}
		l := &lookup{token: known}
		a := token.NewAuthenticator(l, &fixed, time.Now)
		if _, err := a.Authenticate(t.Context(), bearer(credential), here); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := drain(t, a, here); n < 100 || n > 120 {
			t.Errorf("%d failures were looked up at once, want about 100", n)
		}
		before, wrong := l.asked.Load(), 0
		for range 1000 {
			_, err := a.Authenticate(t.Context(), bearer(token.Generate()), here)
			e, ok := errors.AsType[*rate.Exceeded](err)
			if ok && errors.Is(err, token.ErrFailures) && e.Wait > 0 && e.Wait <= 58*time.Second {
				wrong++
			} else if !errors.Is(err, token.ErrInvalid) {
				t.Fatalf("a wrong credential: %v", err)
			}
		}
		if asked := l.asked.Load() - before; asked > 100 || wrong < 900 {
			t.Errorf("of 1000 more, %d were looked up and %d limited, want few and most", asked, wrong)
		}
		drain(t, a, here)
		for _, test := range []struct { // those first that take no time, in which the limit would grow
			what       string
			credential string
			from       from
			err        error
		}{
			{"mistyped", credential[:40], here, token.ErrFailures},
			{"mistyped, from the same address in another form", credential[:40], "::ffff:192.0.2.1", token.ErrFailures},
			{"known", credential, here, nil},
			{"fixed", "a-fixed-credential", here, nil},
			{"wrong, from another address", token.Generate(), "192.0.2.2", token.ErrInvalid},
			{"mistyped, from another address", credential[:40], "192.0.2.2", token.ErrMistyped},
		} {
			if _, err := a.Authenticate(t.Context(), bearer(test.credential), test.from); !errors.Is(err, test.err) {
				t.Errorf("%s: %v, want %v", test.what, err, test.err)
			}
		}
		if _, err := a.Authenticate(t.Context(), nil, here); !errors.Is(err, token.ErrMissing) {
			t.Errorf("no credential: %v, want %v", err, token.ErrMissing)
		}
		time.Sleep(10 * time.Second)
		if _, err := a.Authenticate(t.Context(), bearer(token.Generate()), here); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("after ten quiet seconds: %v, want %v", err, token.ErrInvalid)
		}

		// An IPv6 network of one user is one source.
		drain(t, a, "2001:db8:1:2::1")
		for address, want := range map[from]error{"2001:db8:1:2:ffff::9": token.ErrFailures, "2001:db8:1:3::1": token.ErrMistyped} {
			if _, err := a.Authenticate(t.Context(), bearer(credential[:40]), address); !errors.Is(err, want) {
				t.Errorf("mistyped from %s: %v, want %v", address, err, want)
			}
		}
	})
}

// Who is right and not known yet gets in at the time that he is told, although others go on failing from his address.
func TestRightAmongFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 8 {
			known, credential := token.New("known", "main", token.Create, time.Now(), time.Time{})
			a := token.NewAuthenticator(&lookup{token: known}, nil, time.Now)
			drain(t, a, here)
			ctx, stop := context.WithCancel(t.Context())
			var others sync.WaitGroup
			others.Go(func() {
				for ctx.Err() == nil {
					a.Authenticate(ctx, bearer(token.Generate()), here)
					time.Sleep(10 * time.Millisecond)
				}
			})
			begin := time.Now()
			_, err := a.Authenticate(t.Context(), bearer(credential), here)
			if e, ok := errors.AsType[*rate.Exceeded](err); ok {
				time.Sleep(time.Duration(rate.Seconds(e.Wait)) * time.Second) // as Retry-After has it
				_, err = a.Authenticate(t.Context(), bearer(credential), here)
			}
			if took := time.Since(begin); err != nil || took > time.Minute {
				t.Errorf("a right credential after %v: %v", took, err)
			}
			stop()
			others.Wait()
		}
	})
}

// crowd is a database that is slow and counts how many it answers at once.
type crowd struct {
	token       token.Token
	now, atOnce atomic.Int32
	fails       atomic.Bool
}

func (c *crowd) TokenByHash(_ context.Context, hash token.Hash) (token.Token, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	if hash == c.token.Hash {
		if c.fails.Load() {
			return token.Token{}, errors.New("down")
		}
		return c.token, nil
	}
	c.atOnce.Store(max(c.atOnce.Load(), n))
	time.Sleep(time.Second)
	return token.Token{}, token.ErrUnknown
}

// From however many addresses strangers come, few are looked up at once, and who is known does not wait for
// them, also after the database was away.
func TestStrangersWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{}
		var credential string
		c.token, credential = token.New("known", "main", token.Create, time.Now(), time.Time{})
		a := token.NewAuthenticator(c, nil, time.Now)
		if _, err := a.Authenticate(t.Context(), bearer(credential), here); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		c.fails.Store(true)
		if _, err := a.Authenticate(t.Context(), bearer(credential), here); err == nil {
			t.Fatal("no error though the database is away")
		}
		c.fails.Store(false)
		for i := range 8 {
			go a.Authenticate(t.Context(), bearer(token.Generate()), from(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String()))
		}
		synctest.Wait()
		begin := time.Now()
		if _, err := a.Authenticate(t.Context(), bearer(credential), here); err != nil || time.Since(begin) > 0 {
			t.Errorf("who is known, after %v: %v", time.Since(begin), err)
		}
		time.Sleep(time.Minute)
		if n := c.atOnce.Load(); n != 2 {
			t.Errorf("%d strangers were looked up at once, want 2", n)
		}
	})
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
	f.Fuzz(func(t *testing.T, lines string) {
		a := token.NewAuthenticator(&lookup{token: known}, nil, time.Now) // that has seen no failures
		headers := strings.Split(lines, "\n")
		want := verdict(headers, credential)
		got, err := a.Authenticate(t.Context(), headers, here)
		if !errors.Is(err, want) || (err == nil) != (got != nil && got.Name == "known") {
			t.Fatalf("Authenticate(%q) = %v, %v, want %v", headers, got, err, want)
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
		if _, err := a.Authenticate(b.Context(), header, here); err != nil {
			b.Fatal(err)
		}
	}
}
