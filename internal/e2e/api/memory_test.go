//go:build linux

package api

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

// sendUntilServed sends a request again while the server is too busy, which it may be on a slow machine.
func sendUntilServed(p *testkit.Server, method, path, body string) (testkit.Response, error) {
	for tries := 1; ; tries++ {
		a, err := p.Send(method, path, body)
		if err != nil || a.Number() != 50301 || tries == 60 {
			return a, err
		}
		time.Sleep(time.Second) // Retry-After
	}
}

// A list reads the plants of its page and one more, and a search one list at a time, so those of large plants need no
// more memory than creates of them.
func TestMemoryOfLists(t *testing.T) {
	testkit.Long(t)
	testkit.NotWithRace(t)
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
						if a, err := sendUntilServed(filler, "POST", "/plants",
							fmt.Sprintf(`{"id":%d,"name":"%s"}`, id, name)); err != nil || a.Status != 200 {
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
						a, err := sendUntilServed(p, "GET", fmt.Sprintf("/plants?limit=1000&after=%d", at-1), "")
						link := fmt.Sprintf(`</plants?after=%d&limit=1000>; rel="next"`, at)
						if body := fmt.Sprintf(`[{"id":%d,"name":"%s"}]`, at, name); err != nil || a.Status != 200 || a.Body != body ||
							a.Header.Get("Link") != link {
							t.Errorf("a list from plant %d: %d %v, %d bytes, Link: %s; %.200s", at, a.Status, err, len(a.Body),
								a.Header.Get("Link"), a.Body)
						}
						a, err = sendUntilServed(p, "GET", fmt.Sprintf("/plants?q=y&after=%d", at-1), "")
						link = fmt.Sprintf(`</plants?after=%d&limit=100&q=y>; rel="next"`, at+4) // 5 have 4 MiB
						if err != nil || a.Status != 200 || a.Body != "[]" || a.Header.Get("Link") != link {
							t.Errorf("a search from plant %d: %d %v, Link: %s; %.200s", at, a.Status, err, a.Header.Get("Link"), a.Body)
						}
					}
				})
			}
			all.Wait()
			grown := p.Memory(t, "VmHWM") - before
			t.Logf("%d MiB, and %d more for %d lists and searches at once", before>>20, grown>>20, clients)
			if grown > maxGrowth {
				t.Errorf("%d lists of large plants take %d MiB, want at most %d", clients, grown>>20, maxGrowth>>20)
			}
			a, err := sendUntilServed(p, "GET", fmt.Sprintf("/plants?after=%d", plants-2), "")
			if err != nil || a.Status != 200 || len(a.Body) < len(name) || a.Header.Get("Link") != "" {
				t.Errorf("the list of the last plant: %d %v, %d bytes, Link: %s", a.Status, err, len(a.Body), a.Header.Get("Link"))
			}
		})
	}
}

// Lists that clients do not read take no more memory than is documented, whether the plants are small or large.
func TestMemoryOfUnreadLists(t *testing.T) {
	testkit.Long(t)
	testkit.NotWithRace(t)
	const (
		clients = 900
		tokens  = 4
		most    = 256 << 20
	)
	for _, plants := range []struct{ n, size int }{{1000, 200}, {20, 60_000}} {
		unread := func(t *testing.T, p *testkit.Server) {
			name := strings.Repeat("x", plants.size)
			var creators sync.WaitGroup
			for first := range 8 {
				creators.Go(func() {
					for id := first; id < plants.n; id += 8 {
						a, err := sendUntilServed(p, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":%q}`, id, name))
						if err != nil || a.Status != 200 {
							t.Errorf("create plant %d: %v %d %.200s", id, err, a.Status, a.Body)
						}
					}
				})
			}
			creators.Wait()
			all := []string{p.Token}
			db := p.Cmd.Args[slices.Index(p.Cmd.Args, "--db")+1]
			for i := range tokens - 1 {
				all = append(all, testkit.IssueToken(t, db, "--name", fmt.Sprint("reader", i)))
			}
			if a, err := sendUntilServed(p, "GET", "/plants?limit=1000", ""); err != nil || a.Status != 200 {
				t.Errorf("a list: %v %d %.200s", err, a.Status, a.Body)
			}
			before := p.Memory(t, "VmHWM")
			var conns []io.Reader
			for i := range clients {
				c := p.Dial(t)
				defer c.Close()
				c.(*net.TCPConn).SetReadBuffer(4096)
				fmt.Fprintf(c, "GET /plants?limit=1000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", all[i%tokens])
				conns = append(conns, c)
			}
			statuses := map[string]int{}
			for _, c := range conns {
				start := make([]byte, len("HTTP/1.1 200"))
				io.ReadFull(c, start)
				statuses[string(start)]++
			}
			high := p.Memory(t, "VmHWM")
			t.Logf("%d plants of %d bytes: %d MiB before, at most %d with %d unread lists: %v",
				plants.n, plants.size, before>>20, high>>20, clients, statuses)
			// A slow machine may refuse all of them, because the database does not read so many lists in time.
			if statuses["HTTP/1.1 200"]+statuses["HTTP/1.1 503"] != clients {
				t.Errorf("statuses %v", statuses)
			}
			if high > most {
				t.Errorf("%d unread lists take %d MiB, want at most %d", clients, high>>20, most>>20)
			}
		}
		for _, e := range testkit.OneOfEach() {
			t.Run(e.Name, func(t *testing.T) { unread(t, testkit.Start(t, e.Database(t), "--max-conns", "1024")) })
		}
	}
}
