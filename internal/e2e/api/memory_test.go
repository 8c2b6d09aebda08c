//go:build linux

package api

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"plantstore/internal/testkit"
)

// A list reads the plants of its page and one more, so lists of large plants need no more memory than creates of them.
func TestMemoryOfLists(t *testing.T) {
	const (
		plants    = 44
		clients   = 8
		rounds    = 3
		maxGrowth = 128 << 20
	)
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			db := e.Database(t)
			name := strings.Repeat("x", 1<<20-100)
			filler := testkit.Start(t, db, "--max-body", "1048576")
			var all sync.WaitGroup
			for client := range clients {
				all.Go(func() {
					for id := client; id < plants; id += clients {
						if a, err := filler.Send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"%s"}`, id, name)); err != nil ||
							a.Status != 200 {
							t.Errorf("create plant %d: %v %d %.200s", id, err, a.Status, a.Body)
						}
					}
				})
			}
			all.Wait()
			filler.Kill()

			p := testkit.Start(t, db, "--max-body", "1048576") // another process, without the memory of the creates
			p.Token = filler.Token
			testkit.WantError(t, "a read before", p.Do(t, "GET", "/plants/-1", ""), 40401)
			before := p.Memory(t, "VmHWM")
			for client := range clients {
				all.Go(func() {
					for round := range rounds {
						at := client*rounds + round
						a, err := p.Send("GET", fmt.Sprintf("/plants?limit=1000&after=%d", at-1), "")
						link := fmt.Sprintf(`</plants?after=%d&limit=1000>; rel="next"`, at)
						if body := fmt.Sprintf(`[{"id":%d,"name":"%s"}]`, at, name); err != nil || a.Status != 200 || a.Body != body ||
							a.Header.Get("Link") != link {
							t.Errorf("a list from plant %d: %d %v, %d bytes, Link: %s; %.200s", at, a.Status, err, len(a.Body),
								a.Header.Get("Link"), a.Body)
						}
					}
				})
			}
			all.Wait()
			grown := p.Memory(t, "VmHWM") - before
			t.Logf("%d MiB, and %d more for %d lists at once", before>>20, grown>>20, clients)
			if grown > maxGrowth {
				t.Errorf("%d lists of large plants take %d MiB, want at most %d", clients, grown>>20, maxGrowth>>20)
			}
			a, err := p.Send("GET", fmt.Sprintf("/plants?after=%d", plants-2), "")
			if err != nil || a.Status != 200 || len(a.Body) < len(name) || a.Header.Get("Link") != "" {
				t.Errorf("the list of the last plant: %d %v, %d bytes, Link: %s", a.Status, err, len(a.Body), a.Header.Get("Link"))
			}
		})
	}
}
