package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

// Cluster is what differs from one server if the tables are distributed over several. Package citus implements it. A
// Storage on one server has none.
type Cluster interface {
	// Settings returns more settings of a session, for attempts of this duration.
	Settings(attempt time.Duration) map[string]string

	// Servers returns how many servers keep plants, or 0 if plants are not distributed.
	Servers() int

	// Unsafe returns an error while a server can lose what it confirms. Then no connection is used.
	Unsafe() error

	// Insert returns a statement that stores at least one plant.
	Insert(plants []*plant.Record) string

	// ProvesRollback reports whether an ERROR with this code means that no server commits.
	ProvesRollback(code string) bool

	// OnePerShard returns one of the keys in each shard that has any, or nil if plants are not distributed.
	OnePerShard(keys []plant.Key) []plant.Key

	// Diagnose checks every server.
	Diagnose(ctx context.Context, conn *pgx.Conn, found *storage.Findings) error
}

// Finder finds out whether a database is that of a cluster, and returns nil if it is not. If migrates is set, the
// tables are about to be created or changed.
type Finder func(ctx context.Context, conn *pgx.Conn, migrates bool) (Cluster, error)

// find calls a Finder, which may be nil.
func (find Finder) find(ctx context.Context, conn *pgx.Conn, migrates bool) (Cluster, error) {
	if find == nil {
		return nil, nil
	}
	c, err := find(ctx, conn, migrates)
	return c, Translate(err)
}
