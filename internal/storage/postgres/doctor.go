package postgres

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/storage"
)

// selectDoctor returns the version of the server, and the privileges that the user lacks on tables that exist.
const selectDoctor = `
	SELECT split_part(current_setting('server_version'), ' ', 1),
		coalesce(string_agg(privilege || ' ON ' || name, ', '), '')
	FROM (VALUES ('plants', 'SELECT'), ('plants', 'INSERT'), ('plants', 'UPDATE'), ('plants', 'DELETE'),
		('tokens', 'SELECT'), ('tokens', 'INSERT'), ('tokens', 'UPDATE')) AS needed (name, privilege)
	WHERE NOT has_table_privilege(to_regclass(name), privilege)`

// Diagnose checks the servers and the tables of a database. It changes nothing. find may be nil.
func Diagnose(ctx context.Context, address string, find Finder) (found storage.Findings) {
	if err := diagnose(ctx, &found, address, find); err != nil {
		found.Add("connection", "problem", "%v", Translate(err))
	}
	return found
}

func diagnose(ctx context.Context, found *storage.Findings, address string, find Finder) error {
	config, err := ParseURL(address)
	if err != nil {
		return err
	}
	conn, err := Connect(ctx, config.ConnConfig, Options{UnsafeDurability: true})
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := diagnoseSession(ctx, found, conn); err != nil {
		return err
	}
	found.Passed("connection", "%s", DisplayURL(config.ConnConfig))
	if err := diagnoseServers(ctx, found, conn, find); err != nil {
		return err
	}
	version, err := schemaVersion(ctx, conn, math.MaxInt)
	if err != nil {
		return err
	}
	switch known := len(schemaSteps()); {
	case version > known:
		found.Add("schema", "problem", "version %d is newer than this program; start the newer program", version)
	case version == 0:
		found.Add("schema", "warning", "there are no tables; serve creates them")
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
	return nil
}

func diagnoseSession(ctx context.Context, found *storage.Findings, conn *pgx.Conn) error {
	var version, lacking string
	if err := conn.QueryRow(ctx, selectDoctor).Scan(&version, &lacking); err != nil {
		return err
	}
	found.Add("server", "ok", "PostgreSQL %s", version)
	if lacking != "" {
		found.Add("privileges", "problem", "the user lacks %s; grant it", lacking)
	}
	found.Passed("privileges", "the user has all that serve needs")
	return nil
}

func diagnoseServers(ctx context.Context, found *storage.Findings, conn *pgx.Conn, find Finder) error {
	cluster, err := find.find(ctx, conn, false)
	if err != nil {
		return err
	}
	if cluster != nil {
		return cluster.Diagnose(ctx, conn, found)
	}
	settings, err := readSettings(ctx, conn)
	if err != nil {
		return err
	}
	settings.Diagnose(found, "the server")
	return nil
}

// Diagnose adds a finding about the durability of a server.
func (s ServerSettings) Diagnose(found *storage.Findings, server string) {
	if text := s.Problem(server, Options{}); text != "" {
		found.Add("durability", "problem", "%s", text)
	} else {
		found.Add("durability", "ok", "%s: fsync, full_page_writes and synchronous_commit are safe", server)
	}
}
