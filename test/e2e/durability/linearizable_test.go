//go:build linux

package durability

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"plantstore/test/testkit"
)

var linearTime = flag.Duration("linear", 0, "how long TestLinearizable runs; 0 is one round on each engine")

const (
	contenders   = 64
	contendedIDs = 24
	roundTime    = 3 * time.Second
	minResponses = 6000                  // responses in a round, at least
	minKills     = 3                     // in a round, at least
	maxPause     = 40 * time.Millisecond // between two requests of a client, at most
	checkLimit   = 5 * time.Minute       // to check a round, which normally takes a second
)

// While 64 clients send requests about the same ids and servers are killed, the responses are linearizable: there is
// an order of all operations that explains every response.
func TestLinearizable(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for _, e := range testkit.OneOfEach() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			db, servers := e.Database(t), 2
			embedded := e.Name == "sqlite"
			if embedded {
				servers = 1
			}
			all := testkit.StartReplicas(t, slices.Repeat([]string{db}, servers))
			counts, kills, round := map[string]int{}, 0, 0
			for start := time.Now(); round == 0 || time.Since(start) < *linearTime; round++ {
				c := contendUnderKills(t, db, all, round, &kills)
				history := c.history(embedded)
				switch verdict(history) {
				case porcupine.Illegal:
					t.Fatalf("round %d: no order explains the %d responses: see %s", round, len(history), visualize(t, history))
				case porcupine.Unknown:
					t.Fatalf("round %d: %d responses are not checked after %v: see %s",
						round, len(history), checkLimit, visualize(t, history))
				}
				for _, o := range history {
					counts[label(o)]++
				}
			}
			wantAllOutcomes(t, counts)
			t.Logf("%d kills, %d ids; the count of each response: %v", kills, round*contendedIDs, counts)
		})
	}
}

// contendUnderKills runs one round on new ids, kills and restarts the servers in it, and reads all ids at its end.
func contendUnderKills(t *testing.T, db string, all []*testkit.Server, round int, kills *int) *contest {
	t.Helper()
	var targets []testkit.Target
	for _, s := range all {
		targets = append(targets, s.Target())
	}
	c := contend(t, round*contendedIDs, targets...)
	for enough := *kills + minKills; c.shouldContinue() || *kills < enough; {
		time.Sleep(200*time.Millisecond + rand.N(600*time.Millisecond))
		if time.Since(c.started) > roundTime && *kills >= enough {
			continue // More unknown outcomes would make the check slow.
		}
		i := *kills % len(all)
		c.kill(i, all[i])
		*kills++
		all[i] = testkit.StartAgain(t, all[i], db)
		c.servers[i].Store(&instance{Target: all[i].Target()})
	}
	c.stop()
	last := c.client()
	for _, server := range c.servers {
		before := len(last.done)
		testkit.WaitFor(t, "a list at the end", func() bool {
			last.list(server.Load())
			return len(last.done) > before
		})
	}
	return c
}

// label names an operation and its response.
func label(o porcupine.Operation) string {
	op := o.Input.(operation)
	if op.match != "" {
		op.kind += " If-Match"
	}
	if o.Output == unknown {
		return op.kind + " ?"
	}
	return fmt.Sprint(op.kind, " ", o.Output.(outcome).number)
}

// wantAllOutcomes fails the test if a kind of response is too rare for the history to show anything.
func wantAllOutcomes(t *testing.T, counts map[string]int) {
	t.Helper()
	for what, least := range map[string]int{
		"GET 200": 100, "GET 40401": 100, "POST 200": 20, "POST 40009": 20, "POST ?": 1,
		"PUT 200": 20, "PUT 40401": 5, "PUT If-Match 200": 10, "PUT If-Match 41201": 1,
		"DELETE 204": 5, "DELETE 40401": 5, "DELETE If-Match 204": 10,
	} {
		if counts[what] < least {
			t.Errorf("%s occurred %d times, want at least %d", what, counts[what], least)
		}
	}
}
