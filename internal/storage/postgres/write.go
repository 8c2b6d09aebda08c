package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/storage"
)

const (
	maxAttempts = 5 // of a write that the server rolls back because of other transactions
	minBackoff  = 10 * time.Millisecond
	maxBackoff  = 500 * time.Millisecond
)

// transaction runs on one connection. When it fails, stored reports whether data may be stored all the same.
type transaction func(ctx context.Context, conn *pgx.Conn) (stored bool, err error)

// write runs a transaction, and runs it again as long as that can help. It takes no context on purpose: a
// client that disconnects must not leave a write with an unknown outcome, and its timeout bounds it.
//
// If nothing can have been stored, write tries again once after a lost connection, and a few times after a
// conflict with other transactions. If data may have been stored, the error is storage.ErrUnknown, unless the
// transaction is repeatable: then write repeats it to determine the outcome. After one attempt that may
// have stored data, only a success makes the outcome known.
func (s *Storage) write(slots chan struct{}, repeatable bool, run transaction) error {
	if s.opts.ReadOnly {
		return errSource
	}
	deadline := time.Now().Add(s.timeouts.Write)
	unknown := false
	for attempt := 1; ; attempt++ {
		stored, err := s.attempt(slots, deadline, run)
		if err == nil {
			return nil
		}
		if hasCode(err, readOnlyTransaction) {
			s.pool.Reset() // after a failover, a new connection may reach the new primary
		}
		unknown = unknown || stored
		conflict := hasCode(err, serializationFailure, deadlockDetected) || errors.Is(err, errRemoved)
		again := conflict && attempt < maxAttempts || isLost(err) && !isTimeout(err) && attempt == 1
		if unknown {
			again = repeatable
		}
		wait := backoff(attempt)
		translated := s.damage.Record(Translate(err))
		switch {
		case again && time.Until(deadline) > wait && !s.closed.Load():
			time.Sleep(wait)
		case unknown: // %v, not %w: it must not also be an error that means that nothing was stored
			return fmt.Errorf("%w: %v", storage.ErrUnknown, translated)
		default:
			return translated
		}
	}
}

func (s *Storage) attempt(slots chan struct{}, deadline time.Time, run transaction) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), min(s.timeouts.Attempt, time.Until(deadline)))
	defer cancel()
	if err := acquireSlot(ctx, slots); err != nil {
		return false, err
	}
	defer func() { <-slots }()
	err = s.withConn(ctx, func(conn *pgx.Conn) (err error) {
		stored, err = run(ctx, conn)
		return err
	})
	return stored, err
}

func acquireSlot(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// backoff doubles with each attempt. It is random, so that transactions in conflict do not collide again.
func backoff(attempt int) time.Duration {
	d := min(minBackoff<<min(attempt-1, 10), maxBackoff)
	return d/2 + rand.N(d/2)
}

// read runs a query, and once more if the connection was lost.
//
// When ctx ends, read stops waiting for a slot, but a query that has started continues until its timeout: pgx
// can only cancel it by closing the connection, and a new connection costs more than the rest of a query.
func (s *Storage) read(
	ctx context.Context, slots chan struct{}, timeout time.Duration, run func(context.Context, *pgx.Conn) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := acquireSlot(ctx, slots); err != nil {
		return Translate(err)
	}
	defer func() { <-slots }()
	deadline, _ := ctx.Deadline()
	ctx, cancelQuery := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancelQuery()
	once := func(conn *pgx.Conn) error { return run(ctx, conn) }
	err := s.withConn(ctx, once)
	if err != nil && isLost(err) && ctx.Err() == nil {
		err = s.withConn(ctx, once)
	}
	return s.damage.Record(Translate(err))
}
