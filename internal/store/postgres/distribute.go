package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Distribution is how plants are distributed over the nodes of a Citus cluster.
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
	config, err := parseURL(address)
	if err != nil {
		return err
	}
	if config.ConnConfig.ConnectTimeout == connectTimeout {
		config.ConnConfig.ConnectTimeout *= distributePatience
	}
	err = distribute(ctx, config.ConnConfig, want, report)
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; run the command again to complete it")
	}
	if err != nil {
		return fmt.Errorf("distribute the database %s: %w", displayURL(config.ConnConfig), translate(err))
	}
	return nil
}

func distribute(ctx context.Context, config *pgx.ConnConfig, want Distribution, report func(string)) error {
	config = config.Copy()
	config.RuntimeParams["lock_timeout"] = migrationLockTimeout
	config.RuntimeParams["statement_timeout"] = "0"
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	conn, err := connect(ctx, config, Options{UnsafeDurability: true})
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	nodes, err := checkCluster(ctx, conn)
	if err != nil {
		return err
	}
	if err := newStore(Options{UnsafeDurability: true, KeepSchema: true}).prepare(ctx, config); err != nil {
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

const (
	availableCitus = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'citus')"
	localGroup     = "SELECT groupid FROM pg_dist_local_group"
)

// checkCluster returns the nodes of the cluster that get shards, or what the operator has to do first.
func checkCluster(ctx context.Context, conn *pgx.Conn) (nodes []node, err error) {
	var installed, created bool
	if err := conn.QueryRow(ctx, availableCitus).Scan(&installed); err != nil {
		return nil, err
	}
	if err := conn.QueryRow(ctx, hasCitus).Scan(&created); err != nil {
		return nil, err
	}
	switch {
	case created:
	case installed:
		return nil, errors.New("the extension citus is not created in this database; " +
			"run CREATE EXTENSION citus in the database of this name on every node")
	default:
		return nil, errors.New("the server does not have Citus; install it on every node, set " +
			"shared_preload_libraries = 'citus', restart the servers and run CREATE EXTENSION citus in each database")
	}
	nodesConn := newNodeConn(conn.Config(), defaultTimeouts)
	nodesConn.patience = distributePatience
	defer nodesConn.close()
	all, err := nodesConn.nodes(ctx)
	if err != nil {
		return nil, err
	}
	var group int
	if err := conn.QueryRow(ctx, localGroup).Scan(&group); err != nil {
		return nil, err
	}
	var coordinator *node
	for i, n := range all {
		if n.coordinator {
			coordinator = &all[i]
		}
		if n.hasShards {
			nodes = append(nodes, n)
		}
	}
	host, port := conn.Config().Host, conn.Config().Port
	switch {
	case group != 0 && coordinator != nil:
		return nil, fmt.Errorf("this node is a worker; use the URL of the %s", coordinator.name())
	case group != 0:
		return nil, errors.New("this node is a worker; use the URL of the coordinator")
	case len(nodes) == 0:
		return nil, errors.New("the cluster has no workers; add each one, on the coordinator, with " +
			"SELECT citus_add_node('10.0.0.2', 5432)")
	case coordinator == nil:
		return nil, fmt.Errorf("the workers do not have the address of the coordinator; run "+
			"SELECT citus_set_coordinator_host('%s', %d) there, with an address that the workers can reach", hostOf(host), port)
	}
	if err := nodesError(all, Options{UnsafeDurability: true}); err != nil {
		return nil, err
	}
	return nodes, nil
}

// hostOf returns an example of the address of the coordinator: the host of the URL if it is one on a network.
func hostOf(host string) string {
	if ip := net.ParseIP(host); host == "" || host[0] == '/' || host == "localhost" || ip != nil && ip.IsLoopback() {
		return "10.0.0.1"
	}
	return host
}

const selectDistribution = `
	SELECT name, coalesce(partmethod::text || repmodel::text, ''),
		coalesce(column_to_column_name(logicalrelid, partkey), ''),
		(SELECT count(*) FROM pg_dist_shard s WHERE s.logicalrelid = p.logicalrelid)
	FROM unnest(ARRAY['plants', 'tokens', 'plantstore_schema']) AS name
	LEFT JOIN pg_dist_partition p ON logicalrelid = to_regclass(name)`

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
	rows, err := conn.Query(ctx, selectDistribution)
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
	return d.kind["tokens"] == kindReference && d.kind["plantstore_schema"] == kindReference &&
		d.kind["plants"] == kindDistributed &&
		(want.By == "" || want.By == d.By) && (want.Shards == 0 || want.Shards == d.Shards)
}

const (
	distributeSettings = `
		SET LOCAL client_connection_check_interval = '2s'; -- release the locks if the command is killed
		SET LOCAL citus.shard_replication_factor = 1; -- replicas of shards would not use two-phase commit
		SET LOCAL citus.multi_shard_modify_mode = sequential` // several tables change in one transaction
	lockAll = "LOCK TABLE plants, tokens, plantstore_schema IN ACCESS EXCLUSIVE MODE"

	countAll = `
		SELECT 'plants', count(*) FROM plants UNION ALL SELECT 'tokens', count(*) FROM tokens
		UNION ALL SELECT 'plantstore_schema', count(*) FROM plantstore_schema`

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
func change(ctx context.Context, tx pgx.Tx, nodes []node, want Distribution, report func(string)) (string, error) {
	if _, err := tx.Exec(ctx, distributeSettings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, lockAll); err != nil {
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
	for _, table := range []string{"tokens", "plantstore_schema"} {
		if current.kind[table] == kindReference {
			continue
		}
		report(fmt.Sprintf("Copying %s to every node.", table))
		if err := execAll(ctx, tx, table, createReference, removeLocal); err != nil {
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

func changePlants(ctx context.Context, tx pgx.Tx, current distribution, nodes []node, want Distribution,
	rows int64, report func(string)) error {
	to := want
	if to.By == "" {
		to.By = current.By
	}
	if to.Shards == 0 {
		to.Shards = current.Shards
	}
	switch kind := current.kind["plants"]; kind {
	case kindLocal, kindManaged:
		if to.By == "" {
			to.By = "id"
		}
		if to.Shards == 0 {
			to.Shards = defaultShards(len(nodes))
		}
	case kindDistributed:
		if to == current.Distribution {
			return nil
		}
	default:
		return errors.New("plants is distributed in a way that this program does not support; " +
			"stop every plantstore serve, run " + undistribute + " and repeat this command")
	}
	report(fmt.Sprintf("Distributing %s by %s over %s on %s. Requests wait or return 503 meanwhile.",
		plural(rows, "plant"), to.By, plural(to.Shards, "shard"), plural(len(nodes), "node")))
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

// explainDistribute explains the error of a worker that has a table of the same name already.
func explainDistribute(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == duplicateTable {
		return fmt.Errorf("%s (%s); drop the table there: serve was started on that worker before the tables "+
			"were distributed, or it is one of another program", e.Message, e.Where)
	}
	return translate(err)
}

func execAll(ctx context.Context, tx pgx.Tx, table string, statements ...string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql, table); err != nil {
			return err
		}
	}
	return nil
}

func countRows(ctx context.Context, tx pgx.Tx) (map[string]int64, error) {
	rows, err := tx.Query(ctx, countAll, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	var table string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&table, &n}, func() error {
		counts[table] = n
		return nil
	})
	return counts, err
}
