package client

import (
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// A list ends silently when its reader closes the pipe, like any filter.
func TestListToAClosedPipe(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, testkit.Engines[0].Database(t))
	testkit.Fill(t, p.Target(), 1500, strings.Repeat("x", 100)) // more than fits into a pipe
	for _, form := range []string{"--json", "--json=false"} {
		cmd := exec.Command(testkit.Binary, "plants", "list", form, "--url", p.URL, "--token", p.Token)
		stderr := new(testkit.Output)
		cmd.Stderr = stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		io.ReadFull(stdout, make([]byte, 10))
		stdout.Close()
		if cmd.Wait(); stderr.String() != "" || cmd.ProcessState.ExitCode() != -1 { // ended by SIGPIPE
			t.Errorf("list %s to a closed pipe: %v, %s", form, cmd.ProcessState, stderr)
		}
	}
}

// After store remove, nothing of the store is left, although its clients create plants all the time: with 401, and 429
// after many of those. Creates in other stores succeed meanwhile.
func TestStoreRemove(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			db := e.Database(t)
			p := testkit.Start(t, db)
			shop := testkit.Target{URL: p.URL, Token: testkit.IssueToken(t, db, "--name", "shop", "--store", "shop")}
			var created, slowest atomic.Int64
			var stop atomic.Bool
			var clients sync.WaitGroup
			defer clients.Wait()
			defer stop.Store(true)
			for client := range 4 {
				clients.Go(func() {
					for id := client; !stop.Load(); id += 4 {
						a, err := shop.Send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"x"}`, id), testkit.ContentJSON)
						if created.Add(1); err != nil || !slices.Contains([]int{200, 401, 429}, a.Status) {
							t.Errorf("create in the store: %v, %v", a, err)
							return
						}
					}
				})
			}
			clients.Go(func() {
				for id := 0; !stop.Load(); id++ {
					start := time.Now()
					a, err := p.Target().Send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"x"}`, id), testkit.ContentJSON)
					if err != nil || a.Status != 200 {
						t.Errorf("create in another store: %v, %v", a, err)
						return
					}
					slowest.Store(max(slowest.Load(), int64(time.Since(start))))
				}
			})
			testkit.WaitFor(t, "200 plants", func() bool { return created.Load() > 200 })
			slowest.Store(0)
			out, errs, code := testkit.Run(t, nil, "store", "remove", "shop", "--yes", "--db", db)
			t.Logf("%s: the slowest create in another store took %v", strings.ReplaceAll(out, "\n", "; "),
				time.Duration(slowest.Load()))
			if code != 0 || !strings.HasSuffix(out, "\ntokens removed: 1\n") { // on a slow machine, stderr has the progress
				t.Errorf("store remove: exit %d\n%s%s", code, out, errs)
			}
			before := created.Load()
			testkit.WaitFor(t, "more creates", func() bool { return created.Load() > before+100 })
			out, errs, code = testkit.Run(t, nil, "store", "list", "--db", db)
			if code != 0 || strings.Contains(out, "shop") || !strings.Contains(out, "\nmain ") {
				t.Errorf("store list: exit %d\n%s%s", code, out, errs)
			}
		})
	}
}
