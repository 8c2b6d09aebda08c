package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/store"
)

var errSource = fmt.Errorf("%w: the database was opened for reading only", store.ErrUnavailable)

// OpenSource opens a database for reading only, whatever the durability of its server. It creates and migrates nothing,
// and refuses an older or newer schema. The store refuses every write.
func OpenSource(ctx context.Context, address string) (*Store, error) {
	return Open(ctx, address, Options{UnsafeDurability: true, readOnly: true})
}

const (
	takeLock = "SELECT pg_advisory_xact_lock($1, $2)"

	findLock = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = %d AND objid = %d
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`

	findLockOnNodes = "SELECT bool_or(success AND result = 't') FROM run_command_on_all_nodes($1)"
)

// IsSame reports whether two stores are the same database, whatever the addresses by which they were opened: one
// takes a lock, and the other looks for it.
func IsSame(ctx context.Context, a, b *Store) (same bool, err error) {
	class, object := rand.Int32(), rand.Int32()
	find := fmt.Sprintf(findLock, class, object)
	err = a.read(ctx, a.timeouts.read, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, takeLock, class, object); err != nil {
				return err
			}
			return b.read(ctx, b.timeouts.read, func(ctx context.Context, conn *pgx.Conn) error {
				if b.citus {
					return conn.QueryRow(ctx, findLockOnNodes, find).Scan(&same)
				}
				return conn.QueryRow(ctx, find).Scan(&same)
			})
		})
	})
	return same, err
}
