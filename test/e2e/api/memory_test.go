//go:build linux

package api

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

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
		for _, e := range testkit.OneOfEach() {
			t.Run(fmt.Sprint(e.Name, " ", plants.size), func(t *testing.T) {
				db := e.Database(t)
				p := testkit.Start(t, db, "--max-conns", "1024")
				testkit.Fill(t, p.Target(), plants.n, strings.Repeat("x", plants.size))
				all := []string{p.Token}
				for i := range tokens - 1 {
					all = append(all, testkit.IssueToken(t, db, "--name", fmt.Sprint("reader", i)))
				}
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
				t.Logf("at most %d MiB with %d unread lists: %v", high>>20, clients, statuses)
				// A slow machine may refuse all of them, because the database does not read so many lists in time.
				if statuses["HTTP/1.1 200"]+statuses["HTTP/1.1 503"] != clients || high > most {
					t.Errorf("%v unread lists take %d MiB, want at most %d", statuses, high>>20, most>>20)
				}
			})
		}
	}
}
