//go:build linux

package overload

import (
	"errors"
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
	testkit.Long(t)
	s := startLimited(t, 0, "", "--max-conns", "64")
	modest := testkit.IssueToken(t, databaseOf(s), "--name", "modest")
	late := testkit.IssueToken(t, databaseOf(s), "--name", "late")
	peak := load(t, s, s.Token, "-warm", "200ms", "-window", "500ms")
	if again := load(t, s, s.Token, "-window", "500ms"); again.rate() > peak.rate() { // The machine may have paused.
		peak = again
	}
	for try := 1; ; try++ { // The machine may pause for most of a round.
		err := greedyRound(t, s, modest, late, peak.rate())
		if err == nil {
			return
		}
		if try == 3 {
			t.Fatal(err)
		}
		t.Log(err)
	}
}

// greedyRound overloads the server with its first token, and sends few requests with another. Meanwhile a client with
// a third token connects.
func greedyRound(t *testing.T, s *testkit.Server, modest, late string, peak float64) error {
	t.Helper()
	var both sync.WaitGroup
	var greedy, small report
	both.Go(func() {
		rate := fmt.Sprint(min(100, 0.05*peak))
		small = load(t, s, modest, "-clients", "4", "-rotate", "-rate", rate, "-window", "3500ms")
	})
	time.Sleep(500 * time.Millisecond) // until those are connected
	loaded := make(chan struct{})
	both.Go(func() {
		defer close(loaded)
		greedy = load(t, s, s.Token, "-clients", "300", "-rate", fmt.Sprint(10*peak), "-window", "3s")
	})
	time.Sleep(500 * time.Millisecond) // of load, before a new client connects
	tries := waitAdmitted(t, s, late)
	var err error
	select {
	case <-loaded:
		err = fmt.Errorf("a new client was admitted only after the load, with %d tries", tries)
	default:
	}
	both.Wait()
	t.Logf("greedy: %v", greedy)
	t.Logf("modest: %v", small)
	if greedy.Refused == 0 {
		err = errors.Join(err, errors.New("the greedy token was never refused: there was no overload"))
	}
	// Its four clients may each be refused once, if the machine pauses for so long that they have to reconnect.
	if int64(small.Count)+4 < small.Sent*9/10 || small.Sent < int64(small.Arrivals)/4 {
		err = errors.Join(err, fmt.Errorf("%d of %d creates of the modest token were stored, %d sent", small.Count,
			small.Arrivals, small.Sent))
	}
	if n := small.Broken + small.Wrong + small.Late + greedy.Broken + greedy.Wrong + greedy.Late; n > 0 {
		t.Errorf("%d requests without a valid response", n)
	}
	return err
}

// waitAdmitted waits until a new client is admitted and returns how many times it connected.
func waitAdmitted(t *testing.T, s *testkit.Server, token string) (tries int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	testkit.WaitFor(t, "a new client to be admitted", func() bool {
		tries++
		r, _ := http.NewRequest("GET", s.URL+"/plants/1", nil)
		r.Header.Set("Authorization", "Bearer "+token)
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
