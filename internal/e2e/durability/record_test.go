//go:build linux

package durability

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

// record is the plants that clients sent and the responses that they received. The name of a plant follows from
// its id.
type record struct {
	nameSize int

	mu        sync.Mutex
	sent      map[int64]bool
	acked     map[int64]bool
	refused   map[int64]bool // the response said that nothing was stored
	responses map[int]int    // the count of each error number, and of 200
	slowest   time.Duration
}

func newRecord(nameSize int) *record {
	return &record{
		nameSize: nameSize, sent: map[int64]bool{}, acked: map[int64]bool{}, refused: map[int64]bool{},
		responses: map[int]int{},
	}
}

func (r *record) name(id int64) string {
	name := fmt.Sprintf("plant %d ", id)
	return name + strings.Repeat("x", max(0, r.nameSize-len(name)))
}

func (r *record) body(id int64) string { return fmt.Sprintf(`{"id":%d,"name":%q}`, id, r.name(id)) }

// create sends a plant and records the response. It returns 200 or the error number.
func (r *record) create(t *testing.T, s *testkit.Server, id int64) int {
	t.Helper()
	r.mu.Lock()
	r.sent[id] = true
	r.mu.Unlock()
	start := time.Now()
	a, err := s.Send("POST", "/plants", r.body(id))
	if err != nil {
		t.Errorf("plant %d: %v", id, err)
		return 0
	}
	took := time.Since(start)
	number := a.Number()
	if a.Status == 200 {
		number = 200
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.responses[number]++
	r.slowest = max(r.slowest, took)
	switch number {
	case 200:
		r.acked[id] = true
		delete(r.refused, id)
	case 50301, 50303, 50304:
		if !r.acked[id] {
			r.refused[id] = true
		}
	case 50302: // the outcome is unknown
	default:
		t.Errorf("plant %d: %d %s", id, a.Status, a.Body)
	}
	return number
}

// want is create with the expected number.
func (r *record) want(t *testing.T, s *testkit.Server, id int64, number int) {
	t.Helper()
	if got := r.create(t, s, id); got != number {
		t.Errorf("create plant %d: %d, want %d", id, got, number)
	}
}

// waitAcknowledged creates a plant again until it is acknowledged.
func (r *record) waitAcknowledged(t *testing.T, s *testkit.Server, id int64) {
	t.Helper()
	start := time.Now()
	testkit.WaitFor(t, "a create that returns 200", func() bool { return r.create(t, s, id) == 200 })
	t.Logf("creates succeed after %v", time.Since(start).Round(time.Millisecond))
}

// check compares a SQLite file, which may be in use, with the record: acknowledged plants are stored, refused plants
// are not, and what is stored is as it was sent.
func (r *record) check(t *testing.T, path string) {
	t.Helper()
	if err := integrity(path); err != nil {
		t.Error(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT id, name FROM plants")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	stored := map[int64]bool{}
	for rows.Next() {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			t.Fatal(err)
		}
		stored[id] = true
		if !r.sent[id] || name != r.name(id) {
			t.Errorf("plant %d is stored but was never sent like this", id)
		}
		if r.refused[id] {
			t.Errorf("plant %d was refused and is stored", id)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for id := range r.acked {
		if !stored[id] {
			t.Errorf("plant %d was acknowledged and is lost", id)
		}
	}
	t.Logf("%d sent, %d stored; responses: %v; the slowest took %v",
		len(r.sent), len(stored), r.responses, r.slowest.Round(time.Millisecond))
}

// wantRead fails the test unless a plant can be read.
func wantRead(t *testing.T, s *testkit.Server, id int64) {
	t.Helper()
	if a, err := s.Send("GET", fmt.Sprintf("/plants/%d", id), ""); err != nil || a.Status != 200 {
		t.Errorf("read plant %d: %d %s %v", id, a.Status, a.Body, err)
	}
}

// wantNotReady fails the test unless /readyz gives this reason now.
func wantNotReady(t *testing.T, s *testkit.Server, reason string) {
	t.Helper()
	if status, body := s.Health(t, "/readyz"); status != 503 || !strings.Contains(body, reason) {
		t.Errorf("/readyz = %d %q, want 503 and %q", status, body, reason)
	}
}

// waitNotReady waits until /readyz gives this reason.
func waitNotReady(t *testing.T, s *testkit.Server, reason string) {
	t.Helper()
	testkit.WaitFor(t, fmt.Sprintf("/readyz to report %q", reason), func() bool {
		status, body := s.Health(t, "/readyz")
		return status == 503 && strings.Contains(body, reason)
	})
}
