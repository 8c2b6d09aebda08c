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

	"plantstore/internal/store/postgres"
)

// Distribution is how plants are distributed over the nodes of a cluster.
type Distribution struct {
	By     string `json:"by"`     // the column, id or store; empty: unchanged, or id
	Shards int    `json:"shards"` // 0: unchanged, or a default for the number of nodes
}

// MaxShards is the largest number of shards. Each is a table with an index on its node.
const MaxShards = 1024

const minShards = 2

// defaultShards is the number of shards of a new distribution. A batch of creates has plants of one shard,
// so many shards make small batches; with fewer shards than nodes, some nodes have no plants.
func defaultShards(nodes int) int { return max(minShards, nodes) }

// distributePatience is the factor of the timeouts of connections: no client waits for this command, and a node that
// is busy with moving shards may take seconds to accept a connection.
const distributePatience = 10

// Distribute distributes plants over the nodes of the Citus cluster of a database and copies the other tables to
// every node, in one transaction that locks them. It creates them if they are missing, moves existing rows and
// changes a distribution that differs from want. It calls report with sentences for the operator.
func Distribute(ctx context.Context, address string, want Distribution, report func(string)) error {
	config, err := postgres.ParseURL(address)
	if err != nil {
		return err
	}
	if config.ConnConfig.ConnectTimeout == postgres.ConnectTimeout {
		config.ConnConfig.ConnectTimeout *= distributePatience
	}
	for name, value := range map[string]string{
		"lock_timeout": "120s", "statement_timeout": "0", "idle_in_transaction_session_timeout": "0",
	} {
		config.ConnConfig.RuntimeParams[name] = value
	}
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
	if current.done(want) {
		report(fmt.Sprintf("Nothing to do: plants are distributed by %s over %s, and the other tables are on every node.",
			current.By, plural(current.Shards, "shard")))
		return nil
	}
	var result string
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		result, err = change(ctx, tx, nodes, want, report)
		return err
	})
	if err == nil {
		report(result)
	}
	return err
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
	nodes, err := readNodes(ctx, conn, distributePatience)
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
	return withShards, healthOf(nodes, postgres.Options{UnsafeDurability: true}).err
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

func readDistribution(ctx context.Context, conn interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) (distribution, error) {
	d := distribution{kind: map[string]string{}}
	rows, err := conn.Query(ctx, selectDistribution, postgres.Tables)
	if err != nil {
		return d, err
	}
	var name, kind, column string
	var shards int
	_, err = pgx.ForEachRow(rows, []any{&name, &kind, &column, &shards}, func() error {
		d.kind[name] = kind
		if name == "plants" && kind == kindDistributed {
			d.By, d.Shards = column, shards
		}
		return nil
	})
	return d, err
}

func (d distribution) done(want Distribution) bool {
	for _, table := range copied {
		if d.kind[table] != kindReference {
			return false
		}
	}
	return d.kind["plants"] == kindDistributed && want.or(d.Distribution) == d.Distribution
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

	undistribute = "SELECT undistribute_table('plants')"

	// NULL leaves the column or the number of shards unchanged.
	alterDistributed = `
		SELECT alter_distributed_table('plants', distribution_column => $1, shard_count => $2, colocate_with => 'none')`
)

// change makes the distribution what want says, and returns a sentence about the result. An error means that nothing
// changes. It is an error if a row would be missing afterwards.
func change(ctx context.Context, tx pgx.Tx, nodes int, want Distribution, report func(string)) (string, error) {
	if _, err := tx.Exec(ctx, distributeSettings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(lockAll, strings.Join(postgres.Tables, ", "))); err != nil {
		return "", err
	}
	current, err := readDistribution(ctx, tx)
	if err != nil {
		return "", err
	}
	before, err := countRows(ctx, tx)
	if err != nil {
		return "", err
	}
	for _, table := range copied {
		if current.kind[table] == kindReference {
			continue
		}
		report(fmt.Sprintf("Copying %s to every node.", table))
		_, err := tx.Exec(ctx, createReference, table)
		if err == nil {
			_, err = tx.Exec(ctx, removeLocal, table)
		}
		if err != nil {
			return "", fmt.Errorf("copy %s to every node: %w", table, explainDistribute(err))
		}
	}
	if err := changePlants(ctx, tx, current, nodes, want, before["plants"], report); err != nil {
		return "", err
	}
	after, err := countRows(ctx, tx)
	if err != nil {
		return "", err
	}
	if !maps.Equal(before, after) {
		return "", fmt.Errorf("the tables would have %v rows and had %v before; nothing was changed", after, before)
	}
	if current, err = readDistribution(ctx, tx); err == nil && !current.done(want) {
		err = fmt.Errorf("the distribution would be %+v; nothing was changed", current)
	}
	return fmt.Sprintf("Done: distributed %s by %s over %s, and copied %s to every node.",
		plural(after["plants"], "plant"), current.By, plural(current.Shards, "shard"),
		plural(after["tokens"], "token")), err
}

// or returns d with the values of other where it has none.
func (d Distribution) or(other Distribution) Distribution {
	return Distribution{cmp.Or(d.By, other.By), cmp.Or(d.Shards, other.Shards)}
}

func changePlants(ctx context.Context, tx pgx.Tx, current distribution, nodes int, want Distribution,
	rows int64, report func(string)) error {
	to := want.or(current.Distribution)
	switch kind := current.kind["plants"]; kind {
	case kindLocal, kindManaged:
		to = to.or(Distribution{"id", defaultShards(nodes)})
	case kindDistributed:
		if to == current.Distribution {
			return nil
		}
	default:
		return errors.New("plants is distributed in a way that this program does not support; " +
			"stop every plantstore serve, run " + undistribute + " and repeat this command")
	}
	report(fmt.Sprintf("Distributing %s by %s over %s on %s. Requests wait or return 503 meanwhile.",
		plural(rows, "plant"), to.By, plural(to.Shards, "shard"), plural(nodes, "node")))
	var err error
	if current.kind["plants"] == kindDistributed {
		var by *string
		var shards *int
		if to.By != current.By {
			by = &to.By
		}
		if to.Shards != current.Shards {
			shards = &to.Shards
		}
		_, err = tx.Exec(ctx, alterDistributed, by, shards)
	} else if _, err = tx.Exec(ctx, createDistributed, to.By, to.Shards); err == nil {
		_, err = tx.Exec(ctx, removeLocal, "plants")
	}
	if err != nil {
		return fmt.Errorf("distribute plants: %w", explainDistribute(err))
	}
	return nil
}

func plural[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

const duplicateTable = "42P07"

// explainDistribute explains the error of a worker that has a table of the same name already.
func explainDistribute(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == duplicateTable {
		return fmt.Errorf("%s (%s); drop the table there: serve was started on that worker before the tables "+
			"were distributed, or it is one of another program", e.Message, e.Where)
	}
	return postgres.Translate(err)
}

func countRows(ctx context.Context, tx pgx.Tx) (map[string]int64, error) {
	counts := map[string]int64{}
	for _, table := range postgres.Tables {
		var n int64
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			return nil, err
		}
		counts[table] = n
	}
	return counts, nil
}
