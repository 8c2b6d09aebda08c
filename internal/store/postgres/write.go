package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/store"
)

const (
	maxConflicts = 5 // attempts of a write that the server rolls back in favour of others
	firstPause   = 10 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// attempt is one transaction on one connection. When it fails, stored says whether something may
// be there all the same.
type attempt func(ctx context.Context, conn *pgx.Conn) (stored bool, err error)

// write makes attempts until one succeeds or it is certain that none will soon. It ignores the
// caller's context: what is begun is ended, in a bounded time.
//
// Where nothing can have been stored, a lost connection is tried again once, and a conflict with
// other transactions a few times. Where something may have been stored, the answer is
// store.ErrUnknown, unless the attempt is repeatable: then repeating it is how its outcome is
// found out. Once there is a doubt, only a success removes it.
func (s *Store) write(places chan struct{}, repeatable bool, do attempt) error {
	deadline := time.Now().Add(writeTimeout)
	doubt := false
	for tries := 1; ; tries++ {
		stored, err := s.try(places, deadline, do)
		if err == nil {
			return nil
		}
		if isReadOnly(err) {
			s.pool.Reset() // a new session may find the new primary
		}
		doubt = doubt || stored
		again := isConflict(err) && tries < maxConflicts || isLost(err) && !isTimeout(err) && tries == 1
		if doubt {
			again = repeatable
		}
		rest := pause(tries)
		switch {
		case again && time.Until(deadline) > rest && !s.closed.Load():
			time.Sleep(rest)
		case doubt:
			return fmt.Errorf("%w: %w", store.ErrUnknown, withoutMeaning(translate(err)))
		default:
			return translate(err)
		}
	}
}

func (s *Store) try(places chan struct{}, deadline time.Time, do attempt) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), min(attemptTimeout, time.Until(deadline)))
	defer cancel()
	if err := enter(ctx, places); err != nil {
		return false, err
	}
	defer leave(places)
	conn, err := s.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	return do(ctx, conn.Conn())
}

func enter(ctx context.Context, places chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func leave(places chan struct{}) { <-places }

// pause grows with the tries, and differs between those who met.
func pause(tries int) time.Duration {
	d := min(firstPause<<min(tries-1, 10), longestPause)
	return d/2 + rand.N(d/2)
}

// withoutMeaning keeps the words of an error and drops what it wraps: an outcome that is not known
// must not also be one of those that mean that nothing was stored.
func withoutMeaning(err error) error { return errors.New(err.Error()) }

// exec runs one statement as a transaction of its own and reports how many rows it changed.
func exec(ctx context.Context, conn *pgx.Conn, sql string, args ...any) (rows int64, stored bool, err error) {
	sayNothing(conn)
	tag, err := conn.Exec(ctx, sql, args...)
	if err != nil {
		return 0, mayBeStored(err), err
	}
	return tag.RowsAffected(), true, heard(conn)
}

// read makes attempts of what changes nothing: a second one where the connection was lost.
//
// A caller who goes away ends the wait for a place but not a statement that has begun: the driver
// could only end it by closing the connection, and a new one costs more than the rest of a read.
func (s *Store) read(ctx context.Context, timeout time.Duration, do func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := enter(ctx, s.others); err != nil {
		return translate(err)
	}
	defer leave(s.others)
	deadline, _ := ctx.Deadline()
	ctx, cancelWork := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancelWork()
	err := s.readOnce(ctx, do)
	if err != nil && isLost(err) && ctx.Err() == nil {
		err = s.readOnce(ctx, do)
	}
	return translate(err)
}

func (s *Store) readOnce(ctx context.Context, do func(ctx context.Context, conn *pgx.Conn) error) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return do(ctx, conn.Conn())
}
