package share_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/share"
)

// queueTests state the order in which operations get a unit. An operation is named by its owner and a number. When no
// more can start, the one that started first ends.
var queueTests = map[string]struct {
	capacity  int64
	contended func() bool
	arrivals  string
	starts    string // with | where an operation had to end first
}{
	"one owner in the order of arrival":          {1, no, "a1 a2 a3", "a1|a2|a3"},
	"owners round-robin":                         {1, yes, "a1 a2 a3 b1 b2 c1", "a1|a2|b1|c1|a3|b2"},
	"a single owner gets all units":              {2, no, "a1 a2 a3", "a1 a2|a3"},
	"with other owners, one leaves a unit free":  {2, yes, "a1 a2 a3", "a1|a2|a3"},
	"another owner gets the free unit at once":   {2, yes, "a1 a2 b1 b2", "a1 b1|a2|b2"},
	"a third owner does not wait for all others": {2, yes, "a1 a2 a3 b1 b2 b3 c1", "a1 b1|a2|b2|c1|a3|b3"},
}

func TestQueue(t *testing.T) {
	for name, test := range queueTests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &share.Queue[byte]{Pool: share.Pool[byte]{Capacity: test.capacity, Contended: test.contended}}
				var mu sync.Mutex
				var starts strings.Builder
				var running []func()
				separator := ""
				for _, operation := range strings.Fields(test.arrivals) {
					go func() {
						release, err := q.Acquire(t.Context(), operation[0])
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						starts.WriteString(separator + operation)
						separator = " "
						running = append(running, release)
					}()
					synctest.Wait()
				}
				for len(running) > 0 {
					release := running[0]
					running, separator = running[1:], "|"
					release()
					synctest.Wait()
				}
				if got := starts.String(); got != test.starts {
					t.Errorf("started %s, want %s", got, test.starts)
				}
				if used := q.Pool.Used(); used != 0 {
					t.Errorf("Used() = %d after all operations, want 0", used)
				}
			})
		})
	}
}

// An operation whose context ends does not get a unit, and those behind it still do.
func TestQueueContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &share.Queue[byte]{Pool: share.Pool[byte]{Capacity: 1, Contended: yes}}
		release, err := q.Acquire(t.Context(), 'a')
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		results := make(chan string, 4)
		acquire := func(ctx context.Context, owner byte) {
			go func() {
				release, err := q.Acquire(ctx, owner)
				results <- fmt.Sprintf("%c %v", owner, err)
				if err == nil {
					release()
				}
			}()
			synctest.Wait()
		}
		acquire(ctx, 'b')
		acquire(ctx, 'c')
		acquire(t.Context(), 'c')
		time.Sleep(time.Second)
		for range 2 {
			if got := <-results; !strings.HasSuffix(got, context.DeadlineExceeded.Error()) {
				t.Errorf("after the deadline: %s", got)
			}
		}
		release()
		if got := <-results; got != "c <nil>" {
			t.Errorf("the operation that still waits: %s", got)
		}
		synctest.Wait()
		for range 20 { // select chooses at random, as ctx has ended and the unit is granted
			release, err := q.Acquire(ctx, 'b')
			if err != nil {
				t.Fatalf("Acquire() of a free unit = %v", err)
			}
			release()
		}
	})
}

// Units are neither lost nor duplicated when contexts end while units are granted.
func TestConcurrentQueue(t *testing.T) {
	q := &share.Queue[int]{Pool: share.Pool[int]{Capacity: 3, Contended: yes}}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%5)*10*time.Microsecond)
				if release, err := q.Acquire(ctx, n%4); err == nil {
					if used := q.Pool.Used(); used < 1 || used > 3 {
						t.Errorf("Used() = %d, capacity 3", used)
					}
					release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if used := q.Pool.Used(); used != 0 {
		t.Errorf("Used() = %d after every unit is released, want 0", used)
	}
	release, err := q.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	release()
}
