package webhook

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
)

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
		const left = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM deliveries)"
		return testkit.Query(t, db, left)[0][0] == "0"
	})
}
