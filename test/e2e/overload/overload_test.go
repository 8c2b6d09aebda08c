//go:build linux

package overload

import (
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// With many more clients than it can serve, each of which sends as fast as it can, every response is a 200 or a
// well-formed refusal, no acknowledged plant is lost, memory stays within its bound, and the service recovers. How many
// creates a second that is depends on the machine: see TestOverloadGoodput.
func TestOverload(t *testing.T) {
	testkit.Long(t)
	s := startLimited(t, 256<<20, "")
	over, visitor := overload(t, s, flood{Clients: 1500, Warm: time.Second, Window: 3 * time.Second})
	if len(over.Refused) == 0 {
		t.Error("no request was refused: there was no overload")
	}
	wantSound(t, s, over, visitor)
}

// overload sends a flood. Visitors connect fifty times a second at the same time, since the others are too busy to
// measure how fast they are refused.
func overload(t *testing.T, s *testkit.Server, f flood) (r, visitor *report) {
	t.Helper()
	var visits sync.WaitGroup
	visits.Go(func() {
		visitor = flood{Clients: 75, Warm: f.Warm, Window: f.Window, Visits: true, Urgent: f.Urgent}.send(t, s)
	})
	f.Urgent = false
	r = f.send(t, s)
	visits.Wait()
	t.Logf("%d clients: %v", f.Clients, r)
	t.Logf("visitors: %v", visitor)
	t.Logf("recovered after %d tries to connect", waitAdmitted(t, s))
	return r, visitor
}

// wantSound checks the promises that do not depend on the speed of the machine.
func wantSound(t *testing.T, s *testkit.Server, all ...*report) {
	t.Helper()
	created, evicted := 0, 0
	for _, r := range all {
		created, evicted = created+r.Created, evicted+r.Evicted
		if r.Bad > 0 {
			t.Errorf("not every response is a 200 or a well-formed 503: %v", r)
		}
	}
	if all[0].Created == 0 {
		t.Errorf("no plant was created in the flood: %v", all[0])
	}
	if !s.Running() {
		t.Fatal("the server has ended")
	}
	count := s.Do(t, "GET", "/plants?limit=1", "", "Prefer: count=exact").Header.Get("Plants-Count")
	if stored, err := strconv.Atoi(count); err != nil || stored < created || stored > created+evicted {
		t.Errorf("%s plants are stored, want the %d that were acknowledged", count, created)
	}
	if high := s.Memory(t, "VmHWM"); high > 200<<20 {
		t.Errorf("memory reached %d MiB, want at most 200", high>>20)
	}
}

// On an otherwise idle machine, goodput in an overload is at least 85 % of the peak, and 99 of 100 refusals take at
// most 50 ms. Clients and service share its processor. make overload runs it.
func TestOverloadGoodput(t *testing.T) {
	const goodput, refusal, rounds = 0.85, 50 * time.Millisecond, 10
	full := os.Getenv("PLANTSTORE_TEST_OVERLOAD")
	if full == "" {
		t.Skip("make overload runs it")
	}
	window, err := time.ParseDuration(full)
	if err != nil {
		t.Fatal(err)
	}
	s := startLimited(t, 256<<20, "")
	// The peak is the same load from as many clients as the service admits. The speed of the machine varies, so peak
	// and overload alternate, and the median of their ratios counts.
	var all []*report
	send := func(f flood) (r, visitor *report) {
		f.Urgent = true
		r, visitor = overload(t, s, f)
		all = append(all, r, visitor)
		return r, visitor
	}
	peak := flood{Clients: 490, Warm: 300 * time.Millisecond, Window: 1500 * time.Millisecond}
	var ratios []float64
	var refusals ledger.Times
	before, _ := send(peak)
	for range rounds {
		over, visitor := send(flood{Clients: 2000, Warm: time.Second, Window: window / rounds})
		if len(over.Refused) == 0 || len(visitor.Refused) == 0 {
			t.Fatalf("%d and %d requests were refused, want some", len(over.Refused), len(visitor.Refused))
		}
		after, _ := send(peak)
		ratios = append(ratios, over.rate()/(before.rate()+after.rate())*2)
		refusals, before = append(refusals, visitor.Refused...), after
	}
	slices.Sort(ratios)
	took := refusals.Quantile(0.99)
	t.Logf("goodput %.2f of the peak, the median of %.2f; %d refusals, p99 %v; memory at most %d MiB", ratios[rounds/2],
		ratios, len(refusals), took.Round(time.Microsecond), s.Memory(t, "VmHWM")>>20)
	if ratios[rounds/2] < goodput {
		t.Errorf("goodput %.2f of the peak, want %.2f", ratios[rounds/2], goodput)
	}
	for _, r := range all {
		if r.Evicted*10 > r.Created+len(r.Refused) {
			t.Errorf("too many connections were closed without a response: %v", r)
		}
	}
	if took > refusal {
		t.Errorf("refusals took %v (p99), want at most %v", took, refusal)
	}
	wantSound(t, s, all...)
}

// waitAdmitted waits until a new client is admitted and returns how many times it connected.
func waitAdmitted(t *testing.T, s *testkit.Server) (tries int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	testkit.WaitFor(t, "a new client to be admitted", func() bool {
		tries++
		r, _ := http.NewRequest("GET", s.URL+"/plants/1", nil)
		r.Header.Set("Authorization", "Bearer "+s.Token)
		response, err := client.Do(r)
		if err != nil {
			return false
		}
		response.Body.Close()
		if response.StatusCode != 404 && response.StatusCode != 503 {
			t.Errorf("a new client gets %d", response.StatusCode)
		}
		return response.StatusCode == 404
	})
	return tries
}
