//go:build linux

package durability

import (
	"fmt"
	"strings"
	"testing"

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// record is the ledger of plants whose names have a size.
type record struct {
	*ledger.Ledger
	nameSize int
}

func newRecord(nameSize int) *record { return &record{ledger.New(), nameSize} }

// name follows from the id.
func (r *record) name(id int64) string {
	name := fmt.Sprintf("plant %d ", id)
	return name + strings.Repeat("x", max(0, r.nameSize-len(name)))
}

// create sends a plant and returns the number of the response.
func (r *record) create(s *testkit.Server, id int64) int { return r.Create(s.Target(), id, r.name(id)) }

// want is create with the expected number.
func (r *record) want(t *testing.T, s *testkit.Server, id int64, number int) {
	t.Helper()
	if got := r.create(s, id); got != number {
		t.Errorf("create plant %d: %d, want %d", id, got, number)
	}
}

// waitAcknowledged creates a plant again until it is acknowledged.
func (r *record) waitAcknowledged(t *testing.T, s *testkit.Server, id int64) {
	t.Helper()
	testkit.WaitFor(t, "a create that returns 200", func() bool { return r.create(s, id) == 200 })
}

// check compares the ledger with what a service has stored in a file, and checks the file.
func (r *record) check(t *testing.T, s *testkit.Server, path string) {
	t.Helper()
	if err := integrity(path); err != nil {
		t.Error(err)
	}
	r.Check(t, s.Target())
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
