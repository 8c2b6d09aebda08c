//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// A list reads as many plants as its page has, and one more to know whether there is any: who lists large plants
// takes no more memory than who sends them.
func TestMemoryOfLists(t *testing.T) {
	const (
		plants  = 44
		clients = 8
		rounds  = 3
		room    = 128 << 20
	)
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			db := e.database(t)
			name := strings.Repeat("x", 1<<20-100)
			filler := serve(t, db, "--max-body", "1048576")
			var all sync.WaitGroup
			for client := range clients {
				all.Go(func() {
					for id := client; id < plants; id += clients {
						if a, err := converse(filler.url, filler.token, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"%s"}`, id, name)); err != nil || a.status != 200 {
							t.Errorf("create plant %d: %v %d %.200s", id, err, a.status, a.body)
						}
					}
				})
			}
			all.Wait()
			filler.kill()

			p := serve(t, db, "--max-body", "1048576") // another: creates leave no trace in its memory
			p.token = filler.token
			wantFailure(t, "a read before", p.ask(t, "GET", "/plants/-1", ""), 40401)
			before := p.memory(t, "VmHWM")
			for client := range clients {
				all.Go(func() {
					for round := range rounds {
						at := client*rounds + round
						a, err := converse(p.url, p.token, "GET", fmt.Sprintf("/plants?limit=1000&after=%d", at-1), "")
						link := fmt.Sprintf(`</plants?after=%d&limit=1000>; rel="next"`, at)
						if body := fmt.Sprintf(`[{"id":%d,"name":"%s"}]`, at, name); err != nil || a.status != 200 || a.body != body || a.header.Get("Link") != link {
							t.Errorf("a list from plant %d: %d %v, %d bytes, Link: %s; %.200s", at, a.status, err, len(a.body), a.header.Get("Link"), a.body)
						}
					}
				})
			}
			all.Wait()
			grown := p.memory(t, "VmHWM") - before
			t.Logf("%d MiB, and %d more for %d lists at once", before>>20, grown>>20, clients)
			if grown > room {
				t.Errorf("%d lists of large plants take %d MiB, want %d at most", clients, grown>>20, room>>20)
			}
			a, err := converse(p.url, p.token, "GET", fmt.Sprintf("/plants?after=%d", plants-2), "")
			if err != nil || a.status != 200 || len(a.body) < len(name) || a.header.Get("Link") != "" {
				t.Errorf("the list of the last plant: %d %v, %d bytes, Link: %s", a.status, err, len(a.body), a.header.Get("Link"))
			}
		})
	}
}
