//go:build linux

package durability

import (
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// While the file system is frozen, reads work, no write returns 200 and every write returns before the thaw, and
// /readyz reports it. After the thaw the service continues.
func TestFrozen(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for _, first := range []string{"POST", "PUT", "readyz"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			v := testkit.NewVolume(t, 32<<20)
			db := v.Path("plants.db")
			s := testkit.StartFixed(t, db)
			s.Token = testkit.IssueToken(t, db, "--name", "stored") // looked up in the file, which is a read too
			r := newRecord(100)
			for id := range int64(20) {
				r.want(t, s, id, 200)
			}
			if first == "POST" { // The first write after a start is special: it starts the WAL.
				s.Stop()
				s = testkit.StartAgain(t, s, db)
				time.Sleep(150 * time.Millisecond) // The writer checks its file ten times a second.
			}
			whileFrozen(t, s, r, v, first)
			if first != "readyz" {
				aroundShortFreezes(t, s, r, v)
			}
			s.Kill()
			r.check(t, testkit.StartFixed(t, db), db)
		})
	}
}

// whileFrozen freezes the volume. The first request that the freeze blocks is of the given kind.
func whileFrozen(t *testing.T, s *testkit.Server, r *record, v *testkit.Volume, first string) {
	thawed, thaw := v.Freeze("60") // much longer than a write may take
	wantRead(t, s, 19)
	if first == "readyz" { // There is no write at all.
		waitNotReady(t, s, "waited")
		wantFrozen(t, thawed)
		thaw()
		s.WaitReady(t, true)
		return
	}
	var writes, readers sync.WaitGroup
	writes.Go(func() {
		if first == "POST" {
			r.want(t, s, 99, 50302)
		} else {
			wantNumber(t, "a replace", r.Replace(s.Target(), 18, "new"), 50302)
		}
	})
	testkit.WaitFor(t, "a write that the disk blocks", func() bool { return strings.Contains(s.ThreadStates(), "D") })
	writes.Go(func() { wantNumber(t, "a remove", r.Remove(s.Target(), 19), 50301) })
	for id := range int64(200) {
		writes.Go(func() { r.create(s, 100+id) })
	}
	written := make(chan struct{})
	for range 8 {
		readers.Go(func() {
			for n := int64(0); ; n++ {
				wantRead(t, s, n%20)
				select {
				case <-written:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	waitNotReady(t, s, "waited")
	writes.Wait()
	close(written)
	readers.Wait() // The disk still blocks the first write.
	wantFrozen(t, thawed)
	if slowest := r.Times().Quantile(1); slowest > 30*time.Second {
		t.Errorf("the slowest write took %v, want an end long before the thaw", slowest)
	}
	if all := r.Responses(); all[200] != 20 || all[50301]+all[50302] != 202 {
		t.Errorf("responses %v, want no 200 but the 20 before the freeze", all)
	}
	if rss := s.Memory(t, "VmRSS"); rss > 200<<20 {
		t.Errorf("the service uses %d MiB, want at most 200", rss>>20)
	}
	wantNotReady(t, s, "waited")
	thaw()
	r.waitAcknowledged(t, s, 1000)
	s.WaitReady(t, true)
}

// wantFrozen fails the test if the freeze has already ended: then some response came only after it.
func wantFrozen(t *testing.T, thawed chan struct{}) {
	t.Helper()
	select {
	case <-thawed:
		t.Error("a response arrived only after the thaw")
	default:
	}
}

func wantNumber(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// aroundShortFreezes freezes the volume as a snapshot does, under load: requests take longer and all succeed.
func aroundShortFreezes(t *testing.T, s *testkit.Server, r *record, v *testkit.Volume) {
	before := r.Failed()
	stop := r.Start(t, ledger.Options{Clients: 16}, s.Target())
	for range 3 {
		thawed, _ := v.Freeze("0.3")
		wantRead(t, s, 0)
		<-thawed
	}
	stop()
	if n := r.Failed() - before; n > 0 {
		t.Errorf("%d requests failed around short freezes: %v", n, r.Responses())
	}
}

// On a disk with twenty writes a second, every create succeeds, late.
func TestSlowDisk(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	v := testkit.NewVolume(t, 32<<20)
	db := v.Path("plants.db")
	s := testkit.StartFixed(t, db)
	v.Throttle(s, 20)
	r := newRecord(100)
	start := time.Now()
	var id int64
	for ; time.Since(start) < 2*time.Second; id++ {
		r.create(s, id)
	}
	single := float64(id) / time.Since(start).Seconds()
	if single > 40 {
		t.Errorf("%.0f creates a second by one client: the disk is not slow", single)
	}
	stop := r.Start(t, ledger.Options{Clients: 64}, s.Target())
	r.Wait(t, 500)
	stop()
	if n := r.Failed(); n > 0 {
		t.Errorf("%d requests failed: %v", n, r.Responses())
	}
	s.WaitReady(t, true)
	s.Kill()
	r.check(t, testkit.StartFixed(t, db), db)
}
