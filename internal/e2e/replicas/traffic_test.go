package replicas

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/testkit"
)

// traffic is clients that create plants until they are stopped, and a record of the responses. A service with a fault
// may return 503; whatever it returns must be true.
type traffic struct {
	*record
	t       *testing.T
	targets []testkit.Target
	cuts    bool // whether connections may break, because a server is killed
	next    atomic.Int64
	numbers map[int]int // the count of each error number, and of 200
	end     chan struct{}
	clients sync.WaitGroup
}

// record is what clients sent and what the responses promised.
type record struct {
	mu      sync.Mutex
	sent    map[int64]plant.Plant // every plant in a valid request
	acked   map[int64]bool        // 200
	refused map[int64]bool        // the response said that nothing was stored
}

func newRecord() *record {
	return &record{sent: map[int64]plant.Plant{}, acked: map[int64]bool{}, refused: map[int64]bool{}}
}

// check compares the record with a database and returns every violation.
func (r *record) check(t *testing.T, st store.Store) (violations []string) {
	t.Helper()
	stored := map[int64]plant.Plant{}
	for after := (*int64)(nil); ; {
		page, err := st.List(t.Context(), "main", after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, p := range page {
			stored[p.ID] = p.Plant
		}
		after = &page[len(page)-1].ID
	}
	for id := range r.acked {
		if p, ok := stored[id]; !ok {
			violations = append(violations, fmt.Sprintf("plant %d was acknowledged and is lost", id))
		} else if !p.Equal(r.sent[id]) {
			violations = append(violations, fmt.Sprintf("plant %d was acknowledged and is stored differently", id))
		}
	}
	for id, p := range stored {
		switch sent, ok := r.sent[id]; {
		case r.refused[id]:
			violations = append(violations, fmt.Sprintf("plant %d was refused and is stored", id))
		case !ok:
			violations = append(violations, fmt.Sprintf("plant %d was never sent and is stored", id))
		case !p.Equal(sent):
			violations = append(violations, fmt.Sprintf("plant %d is stored differently than it was sent", id))
		}
	}
	return violations
}

const (
	trafficClients = 24
	noResponse     = 0 // among the numbers
)

// drive starts the clients, spread over the targets.
func drive(t *testing.T, cuts bool, targets ...testkit.Target) *traffic {
	t.Helper()
	tr := &traffic{
		record: newRecord(), t: t, targets: targets, cuts: cuts, numbers: map[int]int{}, end: make(chan struct{}),
	}
	for n := range trafficClients {
		tr.clients.Go(func() { tr.client(n) })
	}
	t.Cleanup(tr.stop)
	return tr
}

func (tr *traffic) stop() {
	select {
	case <-tr.end:
	default:
		close(tr.end)
	}
	tr.clients.Wait()
}

func (tr *traffic) client(n int) {
	for {
		select {
		case <-tr.end:
			return
		default:
		}
		id := tr.next.Add(1)
		tag := "t"
		p := plant.Plant{Name: fmt.Sprintf("plant %d", id), Tag: &tag}
		body := fmt.Sprintf(`{"id":%d,"name":%q,"tag":"t"}`, id, p.Name)
		wrong := id%10 == 0
		if wrong {
			body = strings.Replace(body, `"t"`, "null", 1)
		} else {
			tr.mu.Lock()
			tr.sent[id] = p
			tr.mu.Unlock()
		}
		a, err := tr.targets[n%len(tr.targets)].Send("POST", "/plants", body)
		if err != nil {
			if !tr.cuts {
				tr.t.Errorf("plant %d: no response: %v", id, err)
				return
			}
			n++ // The outcome is unknown. The next request goes to another server.
			tr.mu.Lock()
			tr.numbers[noResponse]++
			tr.mu.Unlock()
		}
		if err != nil || tr.enter(id, wrong, a) {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// enter records a response and reports whether it asks the client to wait.
func (tr *traffic) enter(id int64, wrong bool, a testkit.Response) (wait bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	number := a.Status
	if a.Status != 200 {
		number = a.Number()
		testkit.WantError(tr.t, fmt.Sprintf("plant %d", id), a, number)
	}
	tr.numbers[number]++
	switch {
	case number == 200 && !wrong:
		tr.acked[id] = true
	case number/100 == 400 && wrong, number == 50301, number == 50303, number == 50305: // Nothing was stored.
		tr.refused[id] = true
	case number == 50302: // The outcome is unknown.
	default:
		tr.t.Errorf("plant %d, wrong %v: %d %s", id, wrong, a.Status, a.Body)
	}
	if a.Status == 503 && a.Header.Get("Retry-After") == "" {
		tr.t.Errorf("plant %d: 503 without Retry-After", id)
	}
	return a.Status == 503
}

// count is a copy of the numbers.
func (tr *traffic) count() map[int]int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return maps.Clone(tr.numbers)
}

// wait waits until so many more creates have succeeded.
func (tr *traffic) wait(more int) {
	tr.t.Helper()
	before := tr.count()[200]
	testkit.WaitFor(tr.t, fmt.Sprintf("%d creates", more), func() bool { return tr.count()[200] >= before+more })
}

// settle stops the clients and compares the record with a database.
func (tr *traffic) settle(db string) (violations []string) {
	tr.t.Helper()
	tr.stop()
	violations = tr.check(tr.t, openDatabase(tr.t, db))
	tr.t.Logf("%d plants sent, %d acknowledged, %d refused; responses: %v",
		len(tr.sent), len(tr.acked), len(tr.refused), tr.numbers)
	if len(tr.acked) < 100 || len(tr.refused) < 10 {
		tr.t.Errorf("%d plants acknowledged and %d refused are too few to detect anything", len(tr.acked), len(tr.refused))
	}
	return violations
}

// wantNoViolation stops the clients and fails the test if the record and a database differ.
func (tr *traffic) wantNoViolation(db string) {
	tr.t.Helper()
	if violations := tr.settle(db); len(violations) > 0 {
		tr.t.Errorf("%d violations, the first: %s", len(violations), violations[0])
	}
}

// openDatabase opens a PostgreSQL database for the test.
func openDatabase(t *testing.T, db string) store.Store {
	t.Helper()
	st, err := postgres.Open(t.Context(), db, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}
