package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

func TestCreate(t *testing.T) {
	s := start(t, Config{Max: 10})
	before := time.Now()
	for options, test := range map[string]struct {
		plants int64
		ttl    time.Duration
	}{
		"":                               {12, time.Hour},
		"{}":                             {12, time.Hour},
		`{"seed":"empty"}`:               {0, time.Hour},
		`{"seed":"garden","ttl":60}`:     {12, time.Minute},
		`{"ttl":86400.0,"seed":"empty"}`: {0, 24 * time.Hour},
	} {
		b := s.sandbox(t, options)
		if b.Plants != test.plants || b.plants(t) != test.plants {
			t.Errorf("%s: %d plants are announced and %d stored, want %d", options, b.Plants, b.plants(t), test.plants)
		}
		if ttl := b.Expires.Sub(before); ttl < test.ttl-time.Millisecond || ttl > test.ttl+time.Minute {
			t.Errorf("%s: it lives for %v, want %v", options, ttl, test.ttl)
		}
		if !strings.HasPrefix(b.Store, token.SandboxPrefix) || len(b.Store) != len(token.SandboxPrefix)+26 {
			t.Errorf("%s: the store is %q", options, b.Store)
		}
		info := want(t, "GET /token", b.do("GET", "/token", ""), 200)
		if expires, _ := json.Marshal(b.Expires); info != fmt.Sprintf(`{"name":"sandbox","store":%q,`+
			`"scopes":["plants:create","plants:read","plants:write","webhooks:manage"],"expires":%s,"rate":"50/s",`+
			`"burst":100,"sandbox":true}`,
			b.Store, expires) {
			t.Errorf("%s: the token is %s", options, info)
		}
	}
	if all, err := s.disk.Tokens(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("Tokens() = %v, %v, want none", all, err)
	}
}

// Errors name the member, and repeat nothing that a client without a token has sent.
func TestCreateIsRefused(t *testing.T) {
	s := start(t, Config{Max: 10})
	const notObject = "the body must be empty or a JSON object"
	const unknown = "a member of the body is unknown; use seed and ttl"
	const seed = `seed must be garden or empty","field":"seed`
	const ttl = `ttl must be an integer from 60 to 86400","field":"ttl`
	for body, message := range map[string]string{
		"null": notObject, "[]": notObject, "{": notObject, `{"ttl":60,"ttl":60}`: notObject, "{}{}": notObject,
		`{"secret":1}`: unknown, `{"Seed":"empty"}`: unknown, `{"secret":1,"ttl":60}`: unknown,
		`{"seed":"forest"}`: seed, `{"seed":null}`: seed,
		`{"ttl":59}`: ttl, `{"ttl":86401}`: ttl, `{"ttl":60.5}`: ttl, `{"ttl":"60"}`: ttl,
	} {
		got := want(t, body, s.send("POST", "/sandboxes", body), 40034)
		if wanted := `{"error":40034,"message":"` + message + `"}`; got != wanted {
			t.Errorf("%s: %s, want %s", body, got, wanted)
		}
	}
	got := want(t, "a wrong type", s.send("POST", "/sandboxes", "", "Content-Type", "text/secret"), 40019)
	if strings.Contains(got, "secret") {
		t.Errorf("the response repeats the Content-Type: %s", got)
	}
	want(t, "no body, with a type", s.send("POST", "/sandboxes", "", "Content-Type", "application/json"), 201)
}

func TestResetAndRemove(t *testing.T) {
	s := start(t, Config{Max: 10})
	b, other := s.sandbox(t, ""), s.sandbox(t, "")
	want(t, "a create", b.do("POST", "/plants", newPlant(100, "x")), 200)
	want(t, "an edit", b.do("PUT", "/plants/1", newPlant(1, "x")), 200)
	want(t, "rules", b.do("PUT", "/faults", `[{"delay":0}]`), 200)
	want(t, "a reset", b.do("POST", "/sandbox/reset", ""), 204)
	want(t, "the new plant", b.do("GET", "/plants/100", ""), 40401)
	if got := want(t, "the old plant", b.do("GET", "/plants/1", ""), 200); !strings.Contains(got, "Monstera") {
		t.Errorf("plant 1 after a reset: %s", got)
	}
	if got := b.do("GET", "/faults", "").Body.String(); got != `[{"delay":0}]` {
		t.Errorf("the rules after a reset: %s", got)
	}
	want(t, "a remove", b.do("DELETE", "/sandbox", ""), 204)
	want(t, "a create while the token is still cached", b.do("POST", "/plants", newPlant(1, "x")), 40105)
	again := serve(Config{Max: 10}, s.disk) // whose cache of tokens is empty
	b.service = again
	want(t, "the token", b.do("GET", "/plants", ""), 401)
	if b.plants(t) != 0 || other.plants(t) != 12 || s.boxes[b.Store].rules != nil || s.journal != 0 {
		t.Errorf("%d plants and %v are left, and %d of another sandbox", b.plants(t), s.boxes[b.Store], other.plants(t))
	}
}

// Only what is in memory counts here: the bounds of all sandboxes are too large for a test.
func TestBoundsOfAll(t *testing.T) {
	s := start(t, Config{Max: 10, Rate: rate.Limit{Count: 60, Per: time.Minute, Burst: 60}})
	b := s.sandbox(t, "")
	s.bytes = maxAllBytes
	want(t, "a plant", b.do("POST", "/plants", newPlant(100, "x")), 50307)
	w := s.send("POST", "/sandboxes", "")
	if want(t, "a sandbox", w, 50307); w.Header().Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	if _, err := s.refresh(t.Context()); err != nil || s.bytes > 1000 {
		t.Errorf("%d bytes after a read, %v", s.bytes, err)
	}
	s.disk.free = minFree - 1
	want(t, "on a full disk", s.send("POST", "/sandboxes", ""), 50307)
	s.disk.free = -1
	want(t, "where the free space is unknown", s.send("POST", "/sandboxes", ""), 201)
	s.disk.free, s.cfg.Rate = 0, rate.Limit{}
	want(t, "on the disk of a server for one user", s.send("POST", "/sandboxes", ""), 201)
}

// The time for a step may end before the database fails: the failure is reported all the same.
func TestRemoveReportsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Max: 10})
		row := storage.Sandbox{Store: s.sandbox(t, "").Store, Expires: time.Now()}
		s.disk.list = func() error { time.Sleep(2 * time.Second); return storage.ErrUnavailable }
		if err := s.remove(t.Context(), row, time.Now().Add(time.Second)); err != storage.ErrUnavailable {
			t.Errorf("remove() = %v, want %v", err, storage.ErrUnavailable)
		}
		if err := s.remove(t.Context(), row, time.Now()); err != nil {
			t.Errorf("remove() without time = %v", err)
		}
	})
}

// One reset of a sandbox waits at a time. A second one is the client's fault, not the service's.
func TestResetsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Max: 10})
		b := s.sandbox(t, "")
		s.slot <- struct{}{}
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- b.do("POST", "/sandbox/reset", "") }()
		synctest.Wait()
		want(t, "a second reset", b.do("POST", "/sandbox/reset", ""), 42905)
		<-s.slot
		want(t, "the first reset", <-first, 204)
	})
}

// A sandbox that was used only in its first minutes makes space for another, the oldest first.
func TestMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Max: 3})
		used, first := s.sandbox(t, ""), s.sandbox(t, "")
		time.Sleep(time.Minute)
		second := s.sandbox(t, "")
		want(t, "a fourth", s.send("POST", "/sandboxes", ""), 50307)
		time.Sleep(4 * time.Minute)
		want(t, "a use", used.do("GET", "/plants", ""), 200)
		time.Sleep(time.Minute)
		want(t, "a use", used.do("GET", "/plants", ""), 200)
		if err := s.writeChanges(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := serve(Config{Max: 3}, s.disk) // it knows only what is stored
		if _, err := again.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, oldest := range []*store{first, second} {
			oldest.service = again
			want(t, "one that makes space", oldest.do("DELETE", "/faults", ""), 204)
			again.boxes[oldest.Store].used = time.Time{}
			want(t, "another", again.send("POST", "/sandboxes", ""), 201)
			time.Sleep(2 * time.Second)
			want(t, "one that has made space", oldest.do("DELETE", "/faults", ""), 40105)
		}
		want(t, "when all are used or new", again.send("POST", "/sandboxes", ""), 50307)
		used.service = again
		want(t, "one that is used", used.do("GET", "/plants", ""), 200)
	})
}

func TestRateOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Max: 100, Rate: rate.Limit{Count: 3, Per: time.Minute, Burst: 3}})
		send := func(from string) *httptest.ResponseRecorder {
			s.from = from
			return s.send("POST", "/sandboxes", "")
		}
		for range 3 {
			want(t, "the first ones", send("[2001:db8::1]:4000"), 201)
		}
		w := send("[2001:db8::2]:4001") // of the same network
		if want(t, "one too many", w, 42904); w.Header().Get("Retry-After") != "20" {
			t.Errorf("Retry-After: %s", w.Header().Get("Retry-After"))
		}
		want(t, "another network", send("[2001:db8:0:1::2]:4001"), 201)
		time.Sleep(20 * time.Second)
		want(t, "later", send("[2001:db8::2]:4001"), 201)
	})
}

// Run removes what has expired, also what was stored by requests in flight, and nothing else.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Max: 10})
		short, long := s.sandbox(t, `{"ttl":60}`), s.sandbox(t, "")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.Run(ctx, slog.New(slog.DiscardHandler)); close(ended) }()
		rows := func() (n int) {
			all, err := s.disk.Sandboxes(t.Context())
			if err != nil {
				t.Error(err)
			}
			return len(all)
		}
		time.Sleep(59 * time.Second)
		want(t, "before its end", short.do("GET", "/plants", ""), 200)
		time.Sleep(1500 * time.Millisecond)
		want(t, "after its end", short.do("GET", "/plants", ""), 40105)
		time.Sleep(time.Second)
		if n := short.plants(t); n != 0 || rows() != 2 {
			t.Errorf("%d plants and %d sandboxes are left, want 0 and 2", n, rows())
		}
		if _, err := s.createOne(t.Context(), plant.Record{Store: short.Store}); err != nil { // in flight at the end
			t.Fatal(err)
		}
		time.Sleep(grace + 2*time.Second)
		if n := short.plants(t); n != 0 || rows() != 1 || s.boxes[short.Store] != nil {
			t.Errorf("%d plants and %d sandboxes are left, want 0 and 1", n, rows())
		}
		want(t, "when it is forgotten", short.do("GET", "/plants", ""), 40104)
		want(t, "the other", long.do("POST", "/plants", newPlant(100, "xyz")), 200)
		cancel()
		<-ended
		all, err := s.disk.Sandboxes(t.Context())
		if _, bytes := sizeOf(seeds["garden"]); err != nil || all[0].Plants != 13 || all[0].Bytes != bytes+3 {
			t.Errorf("after the end of Run: %+v, %v", all, err)
		}
	})
}

var _ storage.Sandboxes = (*disk)(nil)
