//go:build linux

package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/bench/measure"
)

func TestMessageHasTheID(t *testing.T) {
	m := newMessage(`/{id}/{below}/{record}/{"id"}`)
	for id, want := range map[int64]string{
		6_000_000_000_000_000: `/6000000000000000/5999999999999999/000000000000000/{"id"}`,
		6_000_000_000_123_456: `/6000000000123456/6000000000123455/000000000123456/{"id"}`,
	} {
		m.set(id)
		if got := string(m.text); got != want {
			t.Errorf("set(%d) = %s, want %s", id, got, want)
		}
	}
}

// drive runs the load on a handler with 4 clients, for 50 ms unless the options say otherwise.
func drive(t *testing.T, o options, handler http.HandlerFunc) measure.Report {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	o.address, o.path, o.idName = strings.TrimPrefix(server.URL, "http://"), "/plants", "id"
	o.name, o.clients, o.window = "Ficus", 4, cmp.Or(o.window, 50*time.Millisecond)
	if o.target == "" {
		o.target = "/plants/{id}"
	}
	report, err := run(o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestGetsMustReturnTheirID(t *testing.T) {
	o := options{method: "GET", stored: 1000, expect: `{"id":{id},`}
	right := drive(t, o, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"id":%s,"name":"Ficus"}`, strings.TrimPrefix(r.URL.Path, "/plants/"))
	})
	const body = `{"id":6000000000000000,"name":"Ficus"}`
	if right.OK == 0 || right.Bad > 0 || right.Body != right.Count*int64(len(body)) {
		t.Errorf("report of right responses: %+v", right)
	}
	wrong := drive(t, o, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"id":6000000000001000,"name":"Ficus"}`)
	})
	if wrong.OK != 0 || wrong.Wrong == 0 || !strings.Contains(wrong.Reason, "does not contain") {
		t.Errorf("report of responses with another id: %+v", wrong)
	}
	var n atomic.Int64
	short := drive(t, o, func(w http.ResponseWriter, r *http.Request) {
		name := strings.Repeat("x", int(n.Add(1)%2))
		fmt.Fprintf(w, `{"id":%s,"name":"%s"}`, strings.TrimPrefix(r.URL.Path, "/plants/"), name)
	})
	if short.Wrong == 0 || !strings.Contains(short.Reason, "bytes") {
		t.Errorf("report of responses of different lengths: %+v", short)
	}
}

func TestEditsEndWithTheLastPlant(t *testing.T) {
	var seen [100]atomic.Int64
	o := options{method: "DELETE", stored: 100, first: 10, window: time.Hour}
	report := drive(t, o, func(w http.ResponseWriter, r *http.Request) {
		var id int
		fmt.Sscanf(r.URL.Path, "/plants/60000000000%d", &id)
		seen[id].Add(1)
		w.WriteHeader(http.StatusNoContent)
	})
	if report.OK != 90 || report.Sent != 90 || report.Bad > 0 {
		t.Errorf("report %+v, want 90 removes", report)
	}
	for id := range seen {
		if got, want := seen[id].Load(), int64(min(1, id/10)); got != want {
			t.Errorf("plant %d was removed %d times, want %d", id, got, want)
		}
	}
}

func TestCreatesBesideAndAmongGets(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "{}") }
	beside := drive(t, options{method: "GET", stored: 10, creators: 4, first: 10}, handler)
	if beside.Created == 0 || beside.Created < beside.Beside || beside.OK < beside.Created+beside.Count {
		t.Errorf("report with creators: %+v", beside)
	}
	share := options{method: "GET", stored: 10, createShare: 0.1, first: 10, window: 50 * time.Millisecond}
	mixed := drive(t, share, handler)
	for mixed.OK < 200 { // on a slow machine
		share.window *= 2
		mixed = drive(t, share, handler)
	}
	if mixed.Beside != 0 || mixed.Created == 0 || mixed.Created > mixed.OK/2 {
		t.Errorf("report with a share of creates: %+v", mixed)
	}
}
