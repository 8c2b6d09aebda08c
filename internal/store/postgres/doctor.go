package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/store"
)

// selectDoctor returns the version and the time of the server, and the privileges that the user lacks on tables that
// exist.
const selectDoctor = `
	SELECT split_part(current_setting('server_version'), ' ', 1), clock_timestamp(),
		coalesce(string_agg(privilege || ' ON ' || name, ', '), '')
	FROM (VALUES ('plants', 'SELECT'), ('plants', 'INSERT'), ('plants', 'UPDATE'), ('plants', 'DELETE'),
		('tokens', 'SELECT'), ('tokens', 'INSERT'), ('tokens', 'UPDATE')) AS needed (name, privilege)
	WHERE NOT has_table_privilege(to_regclass(name), privilege)`

// maxSkew is how much two clocks may differ: each process decides by its own whether a token has expired.
const maxSkew = 5 * time.Second

const (
	selectSize = "SELECT pg_total_relation_size(oid), reltuples::bigint FROM pg_class WHERE oid = 'plants'::regclass"

	countAllPlants = "SELECT count(*) FROM plants"
	countTokens    = "SELECT count(*) FROM tokens"
)

// maxCounted is the size in bytes up to which plants are counted, which takes seconds. The number in a larger table is
// an estimate of the server.
const maxCounted = 256 << 20

// Diagnose checks the servers of a database, and reports what it contains. It changes nothing. find may be nil.
func Diagnose(ctx context.Context, address string, find Finder) (found store.Findings) {
	if err := diagnose(ctx, &found, address, find); err != nil {
		found.Add("connection", "problem", "%v", Translate(err))
	}
	return found
}

func diagnose(ctx context.Context, found *store.Findings, address string, find Finder) error {
	config, err := ParseURL(address)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["statement_timeout"] = "0" // for the count
	conn, err := Connect(ctx, config.ConnConfig, Options{UnsafeDurability: true})
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := diagnoseSession(ctx, found, conn); err != nil {
		return err
	}
	found.Passed("connection", "%s", DisplayURL(config.ConnConfig))
	size, err := diagnoseServers(ctx, found, conn, find)
	if err != nil {
		return err
	}
	version, err := schemaVersion(ctx, conn, math.MaxInt)
	if err != nil {
		return err
	}
	switch known := len(schemaSteps()); {
	case version > known:
		found.Add("schema", "problem", "version %d is newer than this program; start the newer program", version)
		return nil
	case version == 0:
		found.Add("schema", "warning", "there are no tables; serve creates them")
		return nil
	case version < known:
		found.Add("schema", "warning", "version %d is older than %d; make a backup, and run plantstore db migrate --db",
			version, known)
	default:
		found.Add("schema", "ok", "version %d", version)
		problems, err := tableProblems(ctx, conn)
		if err != nil {
			return err
		}
		for _, p := range problems {
			found.Add("tables", "problem", "%s", p)
		}
		found.Passed("tables", "no unsafe changes")
	}
	return diagnoseContents(ctx, found, conn, size)
}

// diagnoseSession checks the version, the clock and the privileges.
func diagnoseSession(ctx context.Context, found *store.Findings, conn *pgx.Conn) error {
	var version, lacking string
	var clock time.Time
	before := time.Now()
	if err := conn.QueryRow(ctx, selectDoctor).Scan(&version, &clock, &lacking); err != nil {
		return err
	}
	found.Add("server", "ok", "PostgreSQL %s", version)
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

// diagnoseServers checks the durability of every server, and returns a query for the size of plants, see Cluster.
func diagnoseServers(ctx context.Context, found *store.Findings, conn *pgx.Conn, find Finder) (size string, err error) {
	cluster, err := find.find(ctx, conn, false)
	if err != nil {
		return "", err
	}
	if cluster != nil {
		return cluster.Diagnose(ctx, conn, found)
	}
	settings, err := readSettings(ctx, conn)
	if err != nil {
		return "", err
	}
	settings.Diagnose(found, "the server")
	return selectSize, nil
}

// Diagnose adds a finding about the durability of a server.
func (s ServerSettings) Diagnose(found *store.Findings, server string) {
	if text := s.Problem(server, Options{}); text != "" {
		found.Add("durability", "problem", "%s", text)
	} else {
		found.Add("durability", "ok", "%s: fsync, full_page_writes and synchronous_commit are safe", server)
	}
}

// diagnoseContents reports how much the database contains.
func diagnoseContents(ctx context.Context, found *store.Findings, conn *pgx.Conn, size string) error {
	if size == "" {
		return nil
	}
	var bytes, plants, tokens int64
	if err := conn.QueryRow(ctx, size).Scan(&bytes, &plants); err != nil {
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
