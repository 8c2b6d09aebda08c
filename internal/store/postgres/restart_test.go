package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store/postgres/pgtest"
)

// A client whose session an operator terminates tries again in another one, whatever the session was doing.
func TestSessionsAreTerminated(t *testing.T) {
	t.Parallel()
	s := openStore(t, withParam(t, pgtest.Database(t), "lock_timeout", "0"))
	database := s.pool.Config().ConnConfig.Database
	create(t, s, record(0))
	terminate := func(where string) {
		const sessions = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = '%s' AND %s"
		rows := pgtest.Shared(t).Query(t, "postgres", fmt.Sprintf(sessions, database, where))
		if len(rows) == 0 || rows[0][0] != "t" {
			t.Errorf("no session was terminated: nothing was tested: %v", rows)
		}
	}
	terminate("state = 'idle' AND application_name = 'plantstore'")
	create(t, s, record(1))
	other := beginTx(t, s, "LOCK TABLE plants")
	created := make(chan struct{})
	go func() {
		defer close(created)
		outcomes, err := s.CreateBatch(context.Background(), []plant.Record{record(2), record(0)})
		wantOutcomes(t, outcomes, err, plant.Created, plant.Same)
	}()
	waitForLock(t, database)
	terminate("wait_event_type = 'Lock'")
	time.Sleep(20 * time.Millisecond) // usually enough for the next session to wait for the lock
	if err := other.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	<-created
}
