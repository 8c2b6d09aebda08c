package postgres

import (
	"context"
	"io/fs"
	"time"

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

// Diagnose checks the servers of a database. It changes nothing.
func Diagnose(ctx context.Context, address string) (found store.Findings) {
	if err := diagnoseSession(ctx, &found, address); err != nil {
		found.Add("connection", "problem", "%v", translate(err))
		return found
	}
	s, err := ReadStatus(ctx, address, false)
	if s == nil {
		found.Add("status", "problem", "%v", err)
		return found
	}
	for _, n := range s.Nodes {
		switch n.State {
		case "ok":
			found.Add("durability", "ok", "%s %s: fsync, full_page_writes and synchronous_commit are safe", n.Role, n.Address)
		case "down":
			found.Add("durability", "problem", "%s %s does not respond: %s; start it", n.Role, n.Address, n.Reason)
		default:
			found.Add("durability", "problem", "%s %s: %s", n.Role, n.Address, n.Reason)
		}
	}
	switch steps, err := fs.Glob(schema, "schema/*.sql"); {
	case err != nil || s.Schema > len(steps):
		found.Add("schema", "problem", "version %d is newer than this program; start the newer program", s.Schema)
	case s.Schema < len(steps):
		found.Add("schema", "warning", "version %d is older than %d; make a backup, and run plantstore db migrate --db",
			s.Schema, len(steps))
	default:
		found.Add("schema", "ok", "version %d", s.Schema)
		for _, p := range s.problems {
			found.Add("tables", "problem", "%s", p)
		}
		found.Passed("tables", "no unsafe changes")
	}
	return found
}

// diagnoseSession checks what only a session of its own can see.
func diagnoseSession(ctx context.Context, found *store.Findings, address string) error {
	config, err := parseURL(address)
	if err != nil {
		return err
	}
	conn, err := connect(ctx, config.ConnConfig, Options{UnsafeDurability: true})
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var clock time.Time
	var lacking string
	before := time.Now()
	if err := conn.QueryRow(ctx, selectDoctor).Scan(&clock, &lacking); err != nil {
		return err
	}
	found.Add("connection", "ok", "%s", displayURL(config.ConnConfig))
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
