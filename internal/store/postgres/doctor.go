package postgres

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/store"
)

// selectDoctor returns the time of the server and the privileges that the user lacks, for tables that exist.
const selectDoctor = `
	SELECT clock_timestamp(), coalesce(string_agg(privilege || ' ON ' || name, ', '), '')
	FROM (VALUES ('plants', 'SELECT'), ('plants', 'INSERT'), ('plants', 'UPDATE'), ('plants', 'DELETE'),
		('tokens', 'SELECT'), ('tokens', 'INSERT'), ('tokens', 'UPDATE')) AS needed (name, privilege)
	WHERE NOT has_table_privilege(to_regclass(name), privilege)`

// maxSkew is how much two clocks may differ: each process decides by its own whether a token has expired.
const maxSkew = 5 * time.Second

// CheckURL returns an error if Open would refuse the URL of a database.
func CheckURL(address string) error {
	_, err := parseURL(address)
	return err
}

const (
	selectVersions = `
		SELECT split_part(current_setting('server_version'), ' ', 1),
			EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')`
	selectCitusVersion = "SELECT split_part(citus_version(), ' ', 2)"

	selectSize      = "SELECT pg_total_relation_size(oid), reltuples::bigint FROM pg_class WHERE oid = 'plants'::regclass"
	selectCitusSize = `
		SELECT coalesce(sum(shard_size), 0)::bigint, -1 FROM citus_shards WHERE table_name = 'plants'::regclass`

	countAllPlants = "SELECT count(*) FROM plants"
	countTokens    = "SELECT count(*) FROM tokens"
)

// maxCounted is the size in bytes up to which plants are counted, which takes seconds. The number in a larger table is
// an estimate of the server.
const maxCounted = 256 << 20

// Diagnose checks the servers of a database, and reports what it contains. It changes nothing.
func Diagnose(ctx context.Context, address string) (found store.Findings) {
	if err := diagnoseDatabase(ctx, &found, address); err != nil {
		found.Add("connection", "problem", "%v", translate(err))
	}
	return found
}

func diagnoseDatabase(ctx context.Context, found *store.Findings, address string) error {
	config, err := parseURL(address)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["statement_timeout"] = "0" // for the count
	conn, err := connect(ctx, config.ConnConfig, Options{UnsafeDurability: true})
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := diagnoseSession(ctx, found, conn); err != nil {
		return err
	}
	found.Passed("connection", "%s", displayURL(config.ConnConfig))
	nodesConn := newNodeConn(config.ConnConfig, defaultTimeouts)
	defer nodesConn.close()
	nodes, err := diagnoseServers(ctx, found, conn, nodesConn)
	if err != nil {
		return err
	}
	version, err := schemaVersion(ctx, conn, math.MaxInt)
	if err != nil {
		return err
	}
	switch steps, err := fs.Glob(schema, "schema/*.sql"); {
	case err != nil || version > len(steps):
		found.Add("schema", "problem", "version %d is newer than this program; start the newer program", version)
		return nil
	case version == 0:
		found.Add("schema", "warning", "there are no tables; serve creates them")
		return nil
	case version < len(steps):
		found.Add("schema", "warning", "version %d is older than %d; make a backup, and run plantstore db migrate --db",
			version, len(steps))
	default:
		found.Add("schema", "ok", "version %d", version)
		if err := diagnoseTables(ctx, found, conn, nodesConn, nodes); err != nil {
			return err
		}
	}
	return diagnoseContents(ctx, found, conn, nodes)
}

// diagnoseSession checks the versions, the clock and the privileges.
func diagnoseSession(ctx context.Context, found *store.Findings, conn *pgx.Conn) error {
	var version, citusVersion, lacking string
	var citus bool
	if err := conn.QueryRow(ctx, selectVersions).Scan(&version, &citus); err != nil {
		return err
	}
	if citus {
		if err := conn.QueryRow(ctx, selectCitusVersion).Scan(&citusVersion); err != nil {
			return err
		}
		version += ", Citus " + citusVersion
	}
	found.Add("server", "ok", "PostgreSQL %s", version)
	var clock time.Time
	before := time.Now()
	if err := conn.QueryRow(ctx, selectDoctor).Scan(&clock, &lacking); err != nil {
		return err
	}
	if skew := clock.Sub(before); skew < -maxSkew || skew > maxSkew+time.Since(before) {
		found.Add("clock", "warning", "the clocks of this machine and the server differ by %v; synchronize both", skew.Abs())
	}
	found.Passed("clock", "the clocks of this machine and the server agree")
	if lacking != "" {
		found.Add("privileges", "problem", "the user lacks %s; grant it", lacking)
	}
	found.Passed("privileges", "the user has all that serve needs")
	return nil
}

// diagnoseServers checks the durability of every server. It returns the nodes of a cluster.
func diagnoseServers(
	ctx context.Context, found *store.Findings, conn *pgx.Conn, nodesConn *nodeConn,
) (nodes []node, err error) {
	if nodes, err = nodesConn.nodes(ctx); err != nil {
		return nil, err
	}
	const safe = "%s: fsync, full_page_writes and synchronous_commit are safe"
	for _, n := range nodes {
		if n.reason != "" {
			found.Add("durability", "problem", "%s does not respond: %s; start it", n.name(), n.reason)
		} else if text, _ := n.settings.problem(n.name(), Options{}); text != "" {
			found.Add("durability", "problem", "%s", text)
		} else {
			found.Add("durability", "ok", safe, n.name())
		}
	}
	if len(nodes) > 0 {
		return nodes, nil
	}
	own, err := sessionOf(conn).readSettings(ctx, conn)
	if err != nil {
		return nil, err
	}
	if text, _ := own.problem("the server", Options{}); text != "" {
		found.Add("durability", "problem", "%s", text)
	}
	found.Passed("durability", safe, "the server")
	return nil, nil
}

// diagnoseTables checks the tables, and the shards on the nodes that respond.
func diagnoseTables(
	ctx context.Context, found *store.Findings, conn *pgx.Conn, nodesConn *nodeConn, nodes []node,
) error {
	problems, err := tableProblems(ctx, conn)
	if err == nil && len(nodes) > 0 {
		var shards []string
		shards, err = nodesConn.shardProblems(ctx, nodes)
		problems = append(problems, shards...)
	}
	for _, p := range problems {
		found.Add("tables", "problem", "%s", p)
	}
	if err == nil {
		found.Passed("tables", "no unsafe changes")
	}
	return err
}

// diagnoseContents reports how much the database contains, and how it is distributed, if all servers respond.
func diagnoseContents(ctx context.Context, found *store.Findings, conn *pgx.Conn, nodes []node) error {
	if nodesError(nodes, Options{UnsafeDurability: true}) != nil {
		return nil
	}
	query := selectSize
	if len(nodes) > 0 {
		d, err := readDistribution(ctx, conn)
		if err != nil {
			return err
		}
		if d.kind["plants"] == kindDistributed {
			query = selectCitusSize
			found.Add("distribution", "ok", "by %s, %d shards", d.By, d.Shards)
		} else {
			found.Add("distribution", "warning", "all plants are on the coordinator; use plantstore db distribute")
		}
	}
	var bytes, plants, tokens int64
	if err := conn.QueryRow(ctx, query).Scan(&bytes, &plants); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, countTokens).Scan(&tokens); err != nil {
		return err
	}
	number := fmt.Sprintf("about %d plants", plants)
	if bytes <= maxCounted {
		if err := conn.QueryRow(ctx, countAllPlants).Scan(&plants); err != nil {
			return err
		}
		number = fmt.Sprintf("%d plants", plants)
	} else if plants < 0 {
		number = "plants"
	}
	found.Add("contents", "ok", "%s in %.1f MiB, %d tokens", number, float64(bytes)/(1<<20), tokens)
	return nil
}
