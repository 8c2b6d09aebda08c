// Package citus stores plants and tokens in a PostgreSQL database whose tables Citus distributes over several servers.
//
// It adds to package postgres what such a cluster needs: which server keeps a plant, inserts that Citus can send
// to one server, and a check of the durability of every server.
package citus

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres"
)

// Storage is an open database of a cluster. Its tables may be distributed, or all on the coordinator.
type Storage struct {
	*postgres.Storage
	cluster *cluster
}

var _ storage.Storage = (*Storage)(nil)

// Open opens a database as postgres.Open does. If it has the extension citus, the result is a *Storage of this package.
//
// It refuses a cluster with a node that can lose what it confirms. A node that does not respond is not refused: the
// plants on the others can be served.
func Open(ctx context.Context, address string, opts postgres.Options) (storage.Storage, error) {
	var c *cluster
	opts.Find = func(ctx context.Context, conn *pgx.Conn, migrates bool) (postgres.Cluster, error) {
		found, err := find(ctx, conn, migrates)
		if found == nil || err != nil {
			return nil, err
		}
		c = found.(*cluster)
		c.opts = opts
		return c, c.admit(ctx, conn)
	}
	s, err := postgres.Open(ctx, address, opts)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return s, nil
	}
	return &Storage{s, c}, nil
}

// Diagnose is postgres.Diagnose for every server of a cluster.
func Diagnose(ctx context.Context, address string) storage.Findings {
	return postgres.Diagnose(ctx, address, find)
}

// Check implements storage.Storage. It checks every node, and fails while any does not respond. If that takes longer
// than nodeWait, the result of the previous check counts.
func (s *Storage) Check(ctx context.Context) error {
	check := func() (any, error) { s.cluster.check(context.WithoutCancel(ctx)); return nil, nil }
	select {
	case <-s.cluster.checks.DoChan("", check):
	case <-time.After(nodeWait):
	}
	return cmp.Or(s.cluster.health.Load().err, s.Storage.Check(ctx))
}

func (s *Storage) Stats() storage.Stats {
	stats := s.Storage.Stats()
	stats.Nodes = s.cluster.health.Load().counts
	return stats
}

func (s *Storage) Shard(key plant.Key) (server, shard int) {
	l := s.cluster.layout.Load()
	if l == nil {
		return 0, 0
	}
	shard = l.find(key)
	return l.shards[shard].server, shard
}

const (
	nodeWait       = 500 * time.Millisecond // for a check of all nodes
	checkTimeout   = 10 * time.Second       // of a check of all nodes
	connectTimeout = time.Second            // of a connection from one node to another, for a check
	queryTimeout   = 2 * time.Second        // of a query of one node
)
