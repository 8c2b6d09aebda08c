package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"plantstore/internal/httpapi"
	"plantstore/internal/token"
)

// requests returns the entries of a sandbox.
func (b *store) requests(t *testing.T, query string) (all []httpapi.Entry) {
	t.Helper()
	w := b.do("GET", "/requests"+query, "")
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil || w.Code != 200 {
		t.Errorf("GET /requests%s: %d %s", query, w.Code, w.Body)
	}
	return all
}

func TestJournal(t *testing.T) {
	s := start(t, Config{Max: 10})
	b, other := s.sandbox(t, ""), s.sandbox(t, "")
	b.do("POST", "/plants", newPlant(100, "x"), "X-Request-Id", "mine", "Prefer", "code=503; when=after",
		"X-Test", "a", "X-Test", "b")
	b.do("GET", "/plants?limit=0&tag=%41", "")
	b.do("PATCH", "/plants", "{}")
	b.do("GET", "/plant/1?x", "")
	b.do("DELETE", "/plants/2", "", "Prefer", "drop")
	for _, path := range []string{"/token", "/faults", "/requests"} {
		b.do("GET", path, "") // are not recorded
	}
	other.do("GET", "/plants", "")
	b.send("GET", "/plants", "") // without a token
	all := b.requests(t, "")
	for i, want := range []string{
		`5 DELETE /plants/2 "" "" 0 0 "drop"`, `4 GET /plant/1 "x" "" 404 40402 ""`, `3 PATCH /plants "" "{}" 405 40501 ""`,
		`2 GET /plants "limit=0&tag=%41" "" 400 40026 ""`,
		`1 POST /plants "" "{\"id\":100,\"name\":\"x\"}" 503 50302 "code=503; when=after"`,
	} {
		e := all[i]
		got := fmt.Sprintf("%d %s %s %q %q %d %d %q", e.Number, e.Method, e.Path, e.Query, e.Body, e.Status, e.Error,
			e.Fault)
		if got != want || e.Time.IsZero() || e.ID == "" {
			t.Errorf("entry %d: %s %v %s, want %s", i, got, e.Time, e.ID, want)
		}
	}
	first := all[len(all)-1]
	if len(all) != 5 || first.ID != "mine" || strings.Join(first.Headers["X-Test"], "|") != "a|b" ||
		first.Headers.Get("Host") != "example.com" || first.Headers.Get("Authorization") != "Bearer …" {
		t.Errorf("%d entries, the first is %+v", len(all), first)
	}
	if all := b.requests(t, "?limit=2&before=4"); len(all) != 2 || all[0].Number != 3 {
		t.Errorf("the page before 4: %+v", all)
	}
	if all := b.requests(t, "?limit=99999999999999999999"); len(all) != 5 {
		t.Errorf("a large limit returns %d entries", len(all))
	}
	for _, query := range []string{"limit=0", "limit=-1", "limit=x", "limit=", "before=0", "before=1.5",
		"limit=1&limit=2"} {
		want(t, query, b.do("GET", "/requests?"+query, ""), 40038)
	}
	want(t, "an unknown parameter", b.do("GET", "/requests?after=1", ""), 40033)
	want(t, "DELETE", b.do("DELETE", "/requests", ""), 204)
	b.do("GET", "/plants/1", "")
	counted := s.boxes[b.Store].journalBytes + s.boxes[other.Store].journalBytes
	if all := b.requests(t, ""); len(all) != 1 || all[0].Number != 6 || s.journal != counted {
		t.Errorf("after DELETE: %+v", all)
	}
}

// Credentials are masked by their form, wherever they are.
func TestJournalMasks(t *testing.T) {
	s := start(t, Config{Max: 10})
	b := s.sandbox(t, "")
	secret := token.Generate()
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
	escaped := strings.ReplaceAll(secret, "_", "%5F")
	b.do("POST", "/nowhere/"+escaped+"?a="+secret+"&b="+escaped+"&c="+jwt+
		"&d="+strings.ReplaceAll(jwt, ".", "%2E"), "x"+secret+" "+jwt,
		"Cookie", "session=hidden", "Proxy-Authorization", "Basic hidden", "X-Api-Key", "hidden",
		"X-Csrf-Token", "hidden thing", "X-"+secret, "1",
		"X-Other", "a "+secret, "Referer", "http://x/?"+escaped, "X-Request-Id", secret)
	e := b.requests(t, "")[0]
	text, _ := json.Marshal(e)
	for _, leak := range []string{secret, secret[6:], jwt, "c2lnbmF0dXJl", "hidden", b.Token} {
		if strings.Contains(string(text), leak) {
			t.Errorf("the journal has %s: %s", leak, text)
		}
	}
	h := e.Headers
	if e.Path != "/nowhere/plant_…" || e.Query != "a=plant_…&b=plant_…&c=eyJ…&d=eyJ…" || e.Body != "xplant_… eyJ…" ||
		h.Get("X-Other") != "a plant_…" || h.Get("Cookie") != "…" || h.Get("Proxy-Authorization") != "Basic …" ||
		h.Get("X-Api-Key") != "…" || h.Get("X-Csrf-Token") != "…" {
		t.Errorf("the entry is %s", text)
	}
}

func TestJournalBodies(t *testing.T) {
	s := start(t, Config{Max: 10})
	b := s.sandbox(t, "")
	for _, test := range []struct {
		sent, recorded string
		isBase64, cut  bool
	}{
		{"\xff\x00a", "\xff\x00a", true, false},
		{strings.Repeat("a", maxBody), strings.Repeat("a", maxBody), false, false},
		{strings.Repeat("a", maxBody+1), strings.Repeat("a", maxBody), false, true},
		{strings.Repeat("a", maxBody-1) + "ä", strings.Repeat("a", maxBody-1), false, true},
		{strings.Repeat("a", maxBody-20) + token.Generate(), strings.Repeat("a", maxBody-20) + "…", false, true},
		{strings.Repeat("a", maxBody-9) + "plant_abcdef", strings.Repeat("a", maxBody-9) + "…", false, true},
		{strings.Repeat("a", maxBody-7) + "\ufffd\ufffdä", strings.Repeat("a", maxBody-7) + "\ufffd\ufffd", false, true},
		{strings.Repeat("\xff", maxBody+1), strings.Repeat("\xff", maxBody), true, true},
		{"\xff" + strings.Repeat("a", 60_000), "\xff" + strings.Repeat("a", maxBody-1), true, true},
	} {
		w := b.do("POST", "/plants", test.sent)
		want(t, "POST", w, 400)
		e := b.requests(t, "?limit=1")[0]
		body := e.Body
		if e.Encoding == "base64" {
			decoded, err := base64.StdEncoding.DecodeString(body)
			if err != nil {
				t.Error(err)
			}
			body = string(decoded)
		}
		if body != test.recorded || (e.Encoding != "") != test.isBase64 || e.Truncated != test.cut {
			t.Errorf("%.20q of %d bytes: %d bytes are recorded, encoding %q, truncated %v", test.sent, len(test.sent), len(body),
				e.Encoding, e.Truncated)
		}
	}
	// What JSON writes as six bytes does not fill the journal, and neither do headers.
	before := len(b.requests(t, ""))
	large := strings.Repeat("\xff", 30_000)
	b.do("POST", "/plants", strings.Repeat("\x01", maxBody+1), "A", "a", "X-Large", large, "Z", "z")
	b.do("GET", "/plants/"+strings.Repeat("1", 30_000), "", "X-"+strings.Repeat("n", 30_000), "a")
	all := b.requests(t, "")
	if h := all[1].Headers; len(all) != before+2 || !all[1].Truncated || h.Get("A") != "a" || h["Z"] != nil ||
		len(h.Get("X-Large")) < maxText {
		t.Errorf("%d entries, %d before; the large one has the headers %.200q", len(all), before, h)
	}
	if e := all[0]; !e.Truncated || len(e.Path) < maxText-10 || len(e.Headers) != 1 {
		t.Errorf("the path has %d bytes, the headers are %.200q", len(e.Path), e.Headers)
	}
	// A large body still reaches the handler whole.
	name := strings.Repeat("x", 60_000)
	want(t, "a large plant", b.do("POST", "/plants", newPlant(500, name)), 200)
	if p, err := b.disk.Get(t.Context(), b.Store, 500); err != nil || p.Name != name {
		t.Errorf("the large plant has a name of %d bytes, %v", len(p.Name), err)
	}
}

func TestJournalIsBounded(t *testing.T) {
	s := New(Config{Max: 10}, nil)
	record := func(store string, n, size int) {
		for range n {
			s.Record(store, httptest.NewRequest("POST", "/plants", nil), httpapi.Entry{Body: strings.Repeat("x", size)})
		}
	}
	record("many", 300, 0)
	record("large", 100, maxBody)
	many, large := s.boxes["many"], s.boxes["large"]
	if n := len(many.journal); n != maxEntries || many.numbered != 300 {
		t.Errorf("%d small entries, want %d", n, maxEntries)
	}
	if n := len(large.journal); n < 30 || large.journalBytes > maxJournal || large.numbered != 100 {
		t.Errorf("%d large entries of %d bytes", n, large.journalBytes)
	}
	for i := range 300 {
		record(fmt.Sprint(i), 30, maxBody)
	}
	var sum int64
	for _, b := range s.boxes {
		for _, r := range b.journal {
			sum += int64(len(r))
		}
	}
	if sum != s.journal || sum > maxJournals || sum < maxJournals*9/10 || len(many.journal) != maxEntries {
		t.Errorf("%d bytes in all journals, counted as %d; that of many has %d entries", sum, s.journal, len(many.journal))
	}
}
