package commit

import (
	"context"
	"testing"

	"plantstore/internal/plant"
)

// The timers of a finished batch are stopped: they would keep its plants in memory until they fire. The size of the
// batch is recorded for the policy.
func TestFinishedBatch(t *testing.T) {
	write := func(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
		return make([]plant.Outcome, len(plants)), nil
	}
	c := New(write, func(*plant.Record) (server, shard int) { return 0, 0 }, Options{Lanes: 2})
	ctx, cancel := context.WithCancel(t.Context())
	b, _, err := c.join(plant.Record{})
	if err != nil {
		t.Fatal(err)
	}
	go c.Run(ctx)
	<-b.done
	cancel()
	if b.timeout.Stop() {
		t.Error("the timeout of a finished batch is still running")
	}
	if b.wait.Stop() {
		t.Error("a finished batch can still become overdue")
	}
	if got := c.servers[0].lastBatch.Load(); got != 1 {
		t.Errorf("the last batch had %d plants, want 1", got)
	}
}
