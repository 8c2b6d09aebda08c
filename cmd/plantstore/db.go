package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/store/sqlite"
)

func dbCommands(env environment) *cobra.Command {
	return group("db", `
Print the state of a database, migrate it, or distribute it.`, `
  plantstore db status`,
		dbStatusCommand(env), dbMigrateCommand(env), dbDistributeCommand(env))
}

func dbDistributeCommand(env environment) *cobra.Command {
	return command(env, dbDistribute, "distribute --db URL", `
Distribute a PostgreSQL database over its Citus cluster. Plants are distributed over the nodes, and
tokens are copied to every node.

It is one transaction, and can be repeated to change the column or the number of shards. The service
may run meanwhile: requests wait or return 503, and no plant is lost.`, `
  plantstore db distribute --db postgres://plants@db.example/plants --by store --shards 32`)
}

type distributeOptions struct {
	db string
	postgres.Distribution
}

func (o *distributeOptions) declare(f *flags) {
	f.database(&o.db)
	f.Lookup("db").Usage, f.Lookup("db").DefValue = "`URL` of the coordinator: postgres://…", ""
	f.StringVar(&o.By, "by", "", "`column` that determines the shard of a plant: id for a few\nlarge stores, store for "+
		"many\n(default: unchanged, or id if plants is not distributed)")
	f.values("by", "id", "store")
	f.IntVar(&o.Shards, "shards", 0,
		"`number` of shards\n(default: unchanged, or 1 for each worker and at least 2)")
}

func dbDistribute(ctx context.Context, o *distributeOptions, env environment) error {
	switch {
	case o.By != "" && o.By != "id" && o.By != "store":
		return usagef("--by is %q: use id or store", o.By)
	case o.Shards < 0 || o.Shards > postgres.MaxShards:
		return usagef("--shards is %d: use 1 to %d", o.Shards, postgres.MaxShards)
	case !postgres.IsURL(o.db):
		return usagef("--db must be the postgres:// URL of the coordinator of a Citus cluster")
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	return postgres.Distribute(ctx, o.db, o.Distribution, func(sentence string) {
		fmt.Fprintln(env.stdout, sentence)
	})
}

func dbMigrateCommand(env environment) *cobra.Command {
	return command(env, dbMigrate, "migrate", `
Migrate the schema of a database to this version of the program. The migration is one transaction.
The only way back is a backup: make one first. serve also migrates the schema. Other commands refuse
an older schema, except backup, db status and doctor.`, `
  plantstore db migrate --db plants.db
  plantstore db migrate --db postgres://plants@db.example/plants`)
}

type migrateOptions struct{ db string }

func (o *migrateOptions) declare(f *flags) { f.database(&o.db) }

func dbMigrate(ctx context.Context, o *migrateOptions, env environment) error {
	if err := mustExist(o.db); err != nil {
		return err
	}
	return env.withStore(ctx, o.db, migrates, func(st store.Store) error {
		text := "The schema has version %[2]d: nothing to do.\n"
		from, to := st.Migrated()
		if from < to {
			text = "The schema was migrated from version %d to %d.\n"
		}
		_, err := fmt.Fprintf(env.stdout, text, from, to)
		return err
	})
}

func dbStatusCommand(env environment) *cobra.Command {
	return command(env, dbStatus, "status", `
Print the state of a database and of each of its servers. Nothing is changed. The exit code is 1 if
a server does not respond or can lose plants that it has confirmed.`, `
  plantstore db status
  plantstore db status --db postgres://plants@db.example/plants --json`)
}

type statusOptions struct {
	databaseOptions
	count bool
}

func (o *statusOptions) declare(f *flags) {
	o.databaseOptions.declare(f)
	f.BoolVar(&o.count, "count", false, "count the plants of a large database too,\nwhich can take minutes")
}

func dbStatus(ctx context.Context, o *statusOptions, env environment) error {
	var status any
	var err error
	switch {
	case postgres.IsURL(o.db):
		var s *postgres.Status
		if s, err = postgres.ReadStatus(ctx, o.db, o.count); s == nil {
			return err
		}
		status = s
	case isURL(o.db):
		return checkDatabase(o.db)
	default:
		if err := mustExist(o.db); err != nil {
			return err
		}
		var s *sqlite.Status
		if s, err = sqlite.ReadStatus(o.db, o.count); s == nil {
			return err
		}
		status = s
	}
	if o.json {
		return errors.Join(env.printJSON(status), err)
	}
	w := newTable(env.stdout)
	switch s := status.(type) {
	case *postgres.Status:
		printPostgres(env.stdout, w, s)
	case *sqlite.Status:
		printSQLite(w, s)
	}
	return errors.Join(w.Flush(), err)
}

func printPostgres(out io.Writer, w *tabwriter.Writer, s *postgres.Status) {
	engine := "PostgreSQL " + s.Version
	if s.Citus != "" {
		engine += ", Citus " + s.Citus
	}
	fmt.Fprintf(w, "database\t%s\nengine\t%s\n", s.Database, engine)
	plants := fmt.Sprint(s.Plants)
	switch down := func(n postgres.NodeStatus) bool { return n.State == "down" }; {
	case slices.ContainsFunc(s.Nodes, down):
		plants = fmt.Sprintf("about %d on the servers that respond", s.Plants)
	case !s.PlantsExact:
		plants = fmt.Sprintf("about %d, an estimate; use --count to count them", s.Plants)
	}
	printTables(w, s.Schema, plants, s.Tokens)
	if d := s.Distribution; d != nil {
		fmt.Fprintf(w, "distributed\tby %s, %d shards\n", d.By, d.Shards)
	} else if s.Citus != "" {
		fmt.Fprint(w, "distributed\tno; use plantstore db distribute\n")
	}
	fmt.Fprintf(w, "size of plants\t%s\n", size(s.Bytes))
	w.Flush()
	fmt.Fprint(out, "\n")
	fmt.Fprint(w, "SERVER\tROLE\tSTATE\tSHARDS\tSIZE\tFSYNC\tFULL_PAGE_WRITES\tSYNCHRONOUS_COMMIT\tENCODING\n")
	for _, n := range s.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t", n.Address, n.Role, n.State)
		if n.State == "down" {
			fmt.Fprint(w, "-\t-\t-\t-\t-\t-\n")
			continue
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", n.Shards, size(n.Bytes), n.Settings.Fsync, n.Settings.FullPageWrites,
			n.Settings.SynchronousCommit, n.Settings.Encoding)
	}
}

func printSQLite(w io.Writer, s *sqlite.Status) {
	fmt.Fprintf(w, "database\t%s\nengine\tSQLite %s\n", s.Database, s.Version)
	plants := fmt.Sprint(s.Plants)
	if !s.PlantsExact {
		plants = "not counted; use --count to count them"
	}
	printTables(w, s.Schema, plants, s.Tokens)
	fmt.Fprintf(w, "journal mode\t%s\nsynchronous\t%s\n", s.JournalMode, s.Synchronous)
	fmt.Fprintf(w, "file\t%s\nwrite-ahead log\t%s\n", size(s.Bytes), size(s.WALBytes))
	fmt.Fprintf(w, "pages in both\t%d of %d bytes, %d of them free\n", s.Pages, s.PageSize, s.FreePages)
}

func printTables(w io.Writer, schema int, plants string, tokens int64) {
	if schema == 0 {
		fmt.Fprint(w, "schema\tnone; serve creates it\n")
		return
	}
	fmt.Fprintf(w, "schema\tversion %d\nplants\t%s\ntokens\t%d\n", schema, plants, tokens)
}

// size formats a number of bytes.
func size(n int64) string {
	value, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}
