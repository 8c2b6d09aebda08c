package postgres

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/storage"
)

// Tables are the tables of a cluster too: plants is distributed, and the others are copied to every node.
var Tables = []string{"plants", "tokens", "plantstore_schema"}

// singleTables are used on a single server only. In a cluster, one node alone has them.
var singleTables = []string{"sandboxes", "webhooks", "events", "deliveries", "leases"}

// SelectLines selects lines for storage.Drift about the relations in a WITH query named ours.
//
//go:embed drift.sql
var SelectLines string

// wantLines is what SelectLines returns for a new database.
//
//go:embed tables.txt
var wantLines string

const withTables = `
	WITH ours AS (SELECT * FROM pg_class WHERE oid = ANY (SELECT to_regclass(name) FROM unnest($1::text[]) AS name))
	SELECT line FROM (%s) AS found`

// tableProblems returns what is unsafe about the tables of a database with the schema of this program.
func tableProblems(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, fmt.Sprintf(withTables, SelectLines), slices.Concat(Tables, singleTables))
	if err != nil {
		return nil, err
	}
	have, err := pgx.CollectRows(rows, pgx.RowTo[string])
	isSingle := func(line string) bool {
		table, _, _ := strings.Cut(line, ": ")
		return slices.Contains(singleTables, table)
	}
	want := strings.Split(strings.TrimSpace(wantLines), "\n")
	if !slices.ContainsFunc(have, isSingle) { // on a worker of a cluster
		want = slices.DeleteFunc(want, isSingle)
	}
	return storage.Drift(have, want), err
}

// Refuse returns an error for the first problem of a table that the options do not accept.
func (o Options) Refuse(problems []string) error {
	for _, p := range problems {
		if !(o.UnsafeDurability && strings.Contains(p, " is UNLOGGED")) {
			return fmt.Errorf("%w: %s; plantstore doctor lists every problem", storage.ErrUnavailable, p)
		}
	}
	return nil
}
