package citus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/storage/postgres"
)

// Distribution is how plants are distributed over the nodes of a cluster.
type Distribution struct {
	By     string `json:"by"`     // the column, id or store; empty: unchanged, or id
	Shards int    `json:"shards"` // 0: unchanged, or a default for the number of nodes
}

// MaxShards is the largest number of shards. Each is a table with an index on its node.
const MaxShards = 1024

// Distribute distributes plants over the nodes of the Citus cluster of a database and copies the other tables to
// every node, in one transaction that locks them. It creates them if they are missing, moves existing rows and
// changes a distribution that differs from want. It calls report with sentences for the operator.
func Distribute(ctx context.Context, address string, want Distribution, report func(string)) error {
	config, err := postgres.ParseURL(address)
	if err != nil {
		return err
	}
	maps.Copy(config.ConnConfig.RuntimeParams, map[string]string{
		"lock_timeout": "120s", "statement_timeout": "0", "idle_in_transaction_session_timeout": "0",
	})
	err = distribute(ctx, address, config.ConnConfig, want, report)
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; run the command again to complete it")
	}
	if err != nil {
		return fmt.Errorf("distribute the database %s: %w", postgres.DisplayURL(config.ConnConfig), postgres.Translate(err))
	}
	return nil
}

func distribute(
	ctx context.Context, address string, config *pgx.ConnConfig, want Distribution, report func(string),
) error {
	conn, err := postgres.Connect(ctx, config, postgres.Options{UnsafeDurability: true})
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	nodes, err := checkCluster(ctx, conn)
	if err != nil {
		return err
	}
	s, err := postgres.Open(ctx, address, postgres.Options{UnsafeDurability: true, KeepSchema: true}) // creates the tables
	if err != nil {
		return errors.Unwrap(err)
	}
	if err := s.Close(); err != nil {
		return err
	}
	current, err := readDistribution(ctx, conn)
	if err != nil {
		return err
	}
	// A batch of creates has plants of one shard, so many shards make small batches; with fewer shards than nodes, some
	// nodes have no plants.
	to := want.or(current.Distribution).or(Distribution{"id", max(2, nodes)})
	switch kind := current.kind["plants"]; {
	case kind != kindLocal && kind != kindManaged && kind != kindDistributed:
		return errors.New("plants is distributed in a way that this program does not support; " +
			"stop every plantstore serve, run SELECT undistribute_table('plants') and repeat this command")
	case current.done(to):
		report(fmt.Sprintf("Nothing to do: plants are distributed by %s (shards: %d), and the other tables are on every "+
			"node.", to.By, to.Shards))
		return nil
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return current.change(ctx, tx, to, nodes, report) })
	if err == nil {
		report(fmt.Sprintf("Done: distributed plants by %s (shards: %d), and copied the other tables to every node.",
			to.By, to.Shards))
	}
	return explainDistribute(err)
}

// checkCluster returns how many nodes of the cluster get shards, or what the operator has to do first.
func checkCluster(ctx context.Context, conn *pgx.Conn) (withShards int, err error) {
	var created, coordinator bool
	if err := conn.QueryRow(ctx, hasCitus).Scan(&created); err != nil {
		return 0, err
	}
	if !created {
		return 0, errors.New("the database does not have the extension citus; install Citus on every node, set " +
			"shared_preload_libraries = 'citus', restart the servers and run CREATE EXTENSION citus in the database of " +
			"this name on every node")
	}
	if err := conn.QueryRow(ctx, isCoordinator).Scan(&coordinator); err != nil {
		return 0, err
	}
	nodes, err := listNodes(ctx, conn)
	if err != nil {
		return 0, err
	}
	known := false
	for _, n := range nodes {
		known = known || n.coordinator
		if n.hasShards {
			withShards++
		}
	}
	switch {
	case !coordinator:
		return 0, errors.New("this node is a worker; use the URL of the coordinator")
	case withShards == 0:
		return 0, errors.New("the cluster has no workers; add each one, on the coordinator, with " +
			"SELECT citus_add_node('10.0.0.2', 5432)")
	case !known:
		return 0, errors.New("the workers do not have the address of the coordinator; run " +
			"SELECT citus_set_coordinator_host('10.0.0.1', 5432) there, with an address that the workers can reach")
	}
	return withShards, nil
}

const selectDistribution = `
	SELECT name, coalesce(partmethod::text || repmodel::text, ''),
		coalesce(column_to_column_name(logicalrelid, partkey), ''),
		(SELECT count(*) FROM pg_dist_shard s WHERE s.logicalrelid = p.logicalrelid)
	FROM unnest($1::text[]) AS name
	LEFT JOIN pg_dist_partition p ON logicalrelid = to_regclass(name)`

// copied are the tables that Citus copies to every node.
var copied = postgres.Tables[1:]

// Kinds of tables in Citus: partmethod and repmodel of pg_dist_partition.
const (
	kindLocal       = ""   // only in PostgreSQL
	kindManaged     = "ns" // only on the coordinator, but known to Citus
	kindReference   = "nt" // a copy on every node
	kindDistributed = "hs" // shards, each on one node
)

type distribution struct {
	Distribution // of plants, if kind is kindDistributed
	kind         map[string]string
}

func readDistribution(ctx context.Context, conn *pgx.Conn) (distribution, error) {
	d := distribution{kind: map[string]string{}}
	rows, err := conn.Query(ctx, selectDistribution, postgres.Tables)
	if err != nil {
		return d, err
	}
	var name, kind, column string
	var shards int
	_, err = pgx.ForEachRow(rows, []any{&name, &kind, &column, &shards}, func() error {
		d.kind[name] = kind
		if kind == kindDistributed {
			d.Distribution = Distribution{column, shards}
		}
		return nil
	})
	return d, err
}

// or returns d with the values of other where it has none.
func (d Distribution) or(other Distribution) Distribution {
	return Distribution{cmp.Or(d.By, other.By), cmp.Or(d.Shards, other.Shards)}
}

func (d distribution) done(to Distribution) bool {
	isCopied := func(table string) bool { return d.kind[table] == kindReference }
	return d.Distribution == to && isCopied(copied[0]) && isCopied(copied[1])
}

const (
	distributeSettings = `
		SET LOCAL client_connection_check_interval = '2s'; -- release the locks if the command is killed
		SET LOCAL citus.shard_replication_factor = 1; -- replicas of shards would not use two-phase commit
		SET LOCAL citus.multi_shard_modify_mode = sequential` // several tables change in one transaction
	lockAll = "LOCK TABLE %s IN ACCESS EXCLUSIVE MODE"

	createReference   = "SELECT create_reference_table($1::text::regclass)"
	createDistributed = `
		SELECT create_distributed_table('plants', $1::text, shard_count => $2, colocate_with => 'none')`
	// The rows that were there stay in the local table, invisible, until this removes them.
	removeLocal = "SELECT truncate_local_data_after_distributing_table($1::text::regclass)"

	// NULL leaves the column or the number of shards unchanged.
	alterDistributed = `
		SELECT alter_distributed_table('plants', distribution_column => NULLIF($1::text, $3::text),
			shard_count => NULLIF($2::int, $4::int), colocate_with => 'none')`
)

// change changes the distribution. An error means that nothing changes.
func (d distribution) change(
	ctx context.Context, tx pgx.Tx, to Distribution, nodes int, report func(string),
) (err error) {
	run := func(sql string, args ...any) {
		if err == nil {
			_, err = tx.Exec(ctx, sql, args...)
		}
	}
	run(distributeSettings, pgx.QueryExecModeSimpleProtocol)
	run(fmt.Sprintf(lockAll, strings.Join(postgres.Tables, ", ")))
	for _, table := range copied {
		if err == nil && d.kind[table] != kindReference {
			report(fmt.Sprintf("Copying %s to every node.", table))
			run(createReference, table)
			run(removeLocal, table)
		}
	}
	if err == nil && d.Distribution != to {
		report(fmt.Sprintf("Distributing plants by %s (shards: %d, nodes: %d). Requests wait or return 503 meanwhile.",
			to.By, to.Shards, nodes))
	}
	switch {
	case d.kind["plants"] != kindDistributed:
		run(createDistributed, to.By, to.Shards)
		run(removeLocal, "plants")
	case d.Distribution != to:
		run(alterDistributed, to.By, to.Shards, d.By, d.Shards)
	}
	return err
}

// explainDistribute explains the error of a worker that has a table of the same name already.
func explainDistribute(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == postgres.DuplicateTable {
		return fmt.Errorf("%s (%s); drop the table there: serve was started on that worker before the tables "+
			"were distributed, or it is one of another program", e.Message, e.Where)
	}
	return postgres.Translate(err)
}
