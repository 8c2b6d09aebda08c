//go:build linux

package overload

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

// A token that sends all it can leaves others their share: clients that are connected are served, and new clients are
// admitted.
func TestGreedyToken(t *testing.T) {
	s := startLimited(t, 0, "", "--max-conns", "64")
	modest, late := issue(t, s, "modest"), issue(t, s, "late")
	peak := load(t, s, s.Token, "-warm", "200ms", "-window", "500ms")
	if again := load(t, s, s.Token, "-window", "500ms"); again.rate() > peak.rate() { // the machine may have paused
		peak = again
	}
	var both sync.WaitGroup
	var greedy, small report
	both.Go(func() {
		rate := fmt.Sprint(min(100, 0.05*peak.rate()))
		small = load(t, s, modest, "-clients", "4", "-rotate", "-rate", rate, "-window", "3500ms")
	})
	time.Sleep(500 * time.Millisecond) // until those are connected
	loaded := make(chan struct{})
	both.Go(func() {
		defer close(loaded)
		greedy = load(t, s, s.Token, "-clients", "300", "-rate", fmt.Sprint(10*peak.rate()), "-window", "3s")
	})
	time.Sleep(500 * time.Millisecond) // of load, before a new client connects
	start, tries := time.Now(), 0
	testkit.WaitFor(t, "a new client of another token to be admitted", func() bool {
		tries++
		r, _ := http.NewRequest("GET", s.URL+"/plants/1", nil)
		r.Header.Set("Authorization", "Bearer "+late)
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			return false
		}
		response.Body.Close()
		if response.StatusCode != 404 && response.StatusCode != 503 {
			t.Errorf("a new client gets %d", response.StatusCode)
		}
		return response.StatusCode == 404
	})
	t.Logf("a new client was admitted after %v and %d tries", time.Since(start), tries)
	select {
	case <-loaded:
		t.Errorf("a new client was admitted only after the load, with %d tries", tries)
	default:
	}
	both.Wait()
	t.Logf("greedy: %v", greedy)
	t.Logf("modest: %v", small)
	if greedy.Refused == 0 {
		t.Error("the greedy token was never refused: there was no overload")
	}
	// Its four clients may each be refused once, if the machine pauses for so long that they have to reconnect.
	if int64(small.Count)+4 < small.Sent*9/10 || small.Sent < int64(small.Arrivals)/4 {
		t.Errorf("%d of %d creates of the modest token were stored, %d sent", small.Count, small.Arrivals, small.Sent)
	}
	if n := small.Broken + small.Wrong + small.Late + greedy.Broken + greedy.Wrong + greedy.Late; n > 0 {
		t.Errorf("%d requests without a valid response", n)
	}
}
