package webhook

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
)

// createAlways creates plants, ten a second, until the test ends. Processes may have ended meanwhile.
func createAlways(t *testing.T, processes []*testkit.Server) {
	t.Helper()
	end := make(chan struct{})
	var creator sync.WaitGroup
	creator.Go(func() {
		for id := 1; ; id++ {
			processes[id%len(processes)].Send("POST", "/plants", plant(int64(id)))
			select {
			case <-time.After(100 * time.Millisecond):
			case <-end:
				return
			}
		}
	})
	t.Cleanup(func() {
		close(end)
		creator.Wait()
	})
}

// otherThan returns the first process that is not one of some.
func otherThan(processes []*testkit.Server, some ...*testkit.Server) *testkit.Server {
	return processes[slices.IndexFunc(processes, func(s *testkit.Server) bool { return !slices.Contains(some, s) })]
}

// newOwner waits until a process that is not in before delivers.
func newOwner(t *testing.T, processes []*testkit.Server, before ...*testkit.Server) (owner *testkit.Server) {
	t.Helper()
	testkit.WaitFor(t, "another process to deliver", func() bool {
		for _, s := range processes {
			if !slices.Contains(before, s) && triesOf(t, s) > 0 {
				owner = s
			}
		}
		return owner != nil
	})
	return owner
}

// One of three processes delivers, for longer than one lease. Another one takes over at once when it stops, and after
// the end of its lease when it is killed. The receiver fails the test if a delivery is in flight twice.
func TestOwner(t *testing.T) {
	t.Parallel()
	db, r := pgtest.Database(t), newReceiver(t)
	processes := []*testkit.Server{start(t, db), start(t, db), start(t, db)}
	to := processes[0].Target()
	add(t, to, r)
	createAlways(t, processes)
	r.wait(5)
	first := newOwner(t, processes)
	r.respond(hanging, 200)
	r.waitInFlight()
	held := "SELECT 1 FROM leases WHERE until > extract(epoch FROM clock_timestamp()) * 1000 AND owner = '" +
		query(t, db, "SELECT owner FROM leases") + "'"
	began := time.Now()
	if code := first.Stop(); code != 0 {
		t.Errorf("the process that delivers ended with %d", code)
	}
	if query(t, db, held) != "" {
		t.Error("a process that has stopped holds the lease")
	}
	r.respond(300*time.Millisecond, 200)
	second := newOwner(t, processes, first)
	t.Logf("another process delivers %v after SIGTERM", time.Since(began).Round(time.Millisecond))

	// On a machine that stalls for seconds, the owner may change once. If the lease were not renewed, it would change
	// each time.
	last := otherThan(processes, first, second)
	for attempt := 1; ; attempt++ {
		before := triesOf(t, last)
		time.Sleep(12 * time.Second)
		if triesOf(t, last) == before {
			break
		} else if attempt == 3 {
			t.Fatal("another process delivers although nothing was killed")
		}
		second, last = last, second
	}
	r.wait(10)

	began = time.Now()
	second.Kill()
	tried := triesOf(t, last)
	testkit.WaitFor(t, "the last process to deliver", func() bool { return triesOf(t, last) > tried })
	took := time.Since(began)
	t.Logf("another process delivers %v after SIGKILL", took.Round(time.Millisecond))
	if took > 30*time.Second {
		t.Errorf("another process delivers %v after SIGKILL, want 15 s, or 30 s on a busy machine", took)
	}
}

// A change by one process applies to its creates at once, and to creates of other processes soon.
func TestChangesApply(t *testing.T) {
	t.Parallel()
	db, r := pgtest.Database(t), newReceiver(t)
	a, b := start(t, db), start(t, db)
	create(t, a.Target(), 0)
	create(t, b.Target(), 1)
	e, began := add(t, a.Target(), r), time.Now()
	create(t, a.Target(), 2)
	if got := plantsOf(t, a.Target(), e); !slices.Equal(got, []int64{2}) {
		t.Errorf("deliveries of the plants %v, want 2", got)
	}
	id := int64(2)
	testkit.WaitFor(t, "a delivery of a plant that another process creates", func() bool {
		id++
		create(t, b.Target(), id)
		return slices.Contains(plantsOf(t, a.Target(), e), id)
	})
	if t.Logf("an endpoint applies to another process after %v", time.Since(began)); time.Since(began) > 30*time.Second {
		t.Error("an endpoint applies to another process later than 2 s, or 30 s on a busy machine")
	}
	last := id + 5
	for ; id < last; id++ {
		create(t, []*testkit.Server{a, b}[rand.N(2)].Target(), id+1)
	}
	call[endpoint](t, a.Target(), "PUT", "/webhooks/"+e.ID, `{"url":"http://`+r.address+`/hook","disabled":true}`, 200)
	before := plantsOf(t, a.Target(), e)
	create(t, a.Target(), last+1)
	if got := plantsOf(t, a.Target(), e); !slices.Equal(got, before) || got[len(got)-1] != last {
		t.Errorf("a disabled endpoint has deliveries of the plants %v, want %v to %d", got, before, last)
	}
	if got := call[endpoint](t, b.Target(), "GET", "/webhooks/"+e.ID, "", 200); !got.Disabled || got.Reason == "" {
		t.Errorf("the disabled endpoint is %+v", got)
	}
	call[any](t, b.Target(), "DELETE", "/webhooks/"+e.ID, "", 204)
	create(t, b.Target(), last+2)
	testkit.WaitFor(t, "the deliveries of a removed endpoint to be removed", func() bool {
		return query(t, db, "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM deliveries)") == "0"
	})
}
