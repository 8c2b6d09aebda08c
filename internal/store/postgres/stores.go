package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

const (
	firstStore = "SELECT store FROM plants ORDER BY store LIMIT 1"
	nextStore  = "SELECT store FROM plants WHERE store > $1 ORDER BY store LIMIT 1"
)

// Stores implements store.Plants. SELECT DISTINCT would read the whole index, and Citus refuses the recursive query
// that would not.
func (s *Store) Stores(ctx context.Context) (names []string, err error) {
	text, args := firstStore, []any(nil)
	for {
		var name string
		err := s.read(ctx, s.timeouts.read, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, text, args...).Scan(&name)
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		names = append(names, name)
		text, args = nextStore, []any{name}
	}
}
