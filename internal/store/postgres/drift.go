package postgres

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/store"
)

//go:embed drift.sql
var selectLines string

// wantLines is what selectLines returns for a new database.
//
//go:embed tables.txt
var wantLines string

// withTables selects lines about the tables of a database, and withShards about the shards of a node. It omits the
// columns and keys of shards, because Citus creates them.
const (
	oursOf     = "(to_regclass('plants'), to_regclass('tokens'), to_regclass('plantstore_schema'))"
	withTables = "WITH ours AS (SELECT * FROM pg_class WHERE oid IN " + oursOf + ") SELECT line FROM (%s) AS found"
	withShards = `
		WITH ours AS (SELECT pg_class.* FROM pg_dist_shard JOIN pg_dist_placement USING (shardid)
			JOIN pg_class ON pg_class.oid = to_regclass(shard_name(logicalrelid, shardid))
			WHERE logicalrelid IN ` + oursOf + ` AND groupid = (SELECT groupid FROM pg_dist_local_group))
		SELECT coalesce(string_agg(line, '|'), '') FROM (%s) AS found WHERE line !~ ': (column|key) '`
)

// tableProblems returns what is unsafe about the tables of a database with the schema of this program.
func tableProblems(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, fmt.Sprintf(withTables, selectLines))
	if err != nil {
		return nil, err
	}
	have, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return store.Drift(have, strings.Split(strings.TrimSpace(wantLines), "\n")), err
}

// shardProblems is tableProblems for the shards on the nodes that respond.
func (c *nodeConn) shardProblems(ctx context.Context, nodes []node) (problems []string, err error) {
	for i, n := range nodes {
		if n.reason != "" {
			continue
		}
		results, err := c.run(ctx, nodes[i:i+1], fmt.Sprintf(withShards, selectLines))
		if err == nil && !results[0].ok {
			err = fmt.Errorf("%s: %s", n.name(), results[0].text)
		}
		if err != nil && !isCanceled(err) { // canceled: the node has hung since nodes was read
			return nil, err
		}
		for _, line := range results {
			for _, p := range store.Drift(strings.FieldsFunc(line.text, func(r rune) bool { return r == '|' }), nil) {
				problems = append(problems, n.name()+": "+p)
			}
		}
	}
	return problems, nil
}

// refuse returns an error for the first problem that the options do not accept.
func (o Options) refuse(problems []string, err error) error {
	for _, p := range problems {
		if err == nil && !(o.UnsafeDurability && strings.Contains(p, " is UNLOGGED")) {
			err = fmt.Errorf("%w: %s; plantstore doctor lists every problem", store.ErrUnavailable, p)
		}
	}
	return translate(err)
}
