package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore/internal/store/postgres"
	"plantstore/internal/store/sqlite"
)

const aboutDistribute = `Distributes the plants of a PostgreSQL database over the nodes of its Citus cluster, and
copies its tokens to every node. It is one transaction, and can be repeated to change the column or the number
of shards. The service may run meanwhile: requests wait or return 503, and no plant is lost.`

func dbDistribute(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "db distribute", "--db URL [flags]", aboutDistribute)
	db := f.database()
	by := f.String("by", "", "`column` that determines the shard of a plant: id for a few large stores, store for many "+
		"(default: unchanged, or id if plants is not distributed)")
	shards := f.Int("shards", 0, "`number` of shards (default: unchanged, or 1 for each worker and at least 2)")
	if _, err := f.parse(args); err != nil {
		return err
	}
	switch {
	case *by != "" && *by != "id" && *by != "store":
		return f.usageError("--by is %q: use id or store", *by)
	case *shards < 0 || *shards > postgres.MaxShards:
		return f.usageError("--shards is %d: use 1 to %d", *shards, postgres.MaxShards)
	case !postgres.IsURL(*db):
		return f.usageError("--db must be the postgres:// URL of the coordinator of a Citus cluster")
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	return postgres.Distribute(ctx, *db, postgres.Distribution{By: *by, Shards: *shards}, func(sentence string) {
		fmt.Fprintln(env.stdout, sentence)
	})
}

func dbStatus(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "db status", "[flags]",
		"Prints the state of a database and of each of its servers, and changes nothing.\n"+
			"The exit code is 1 if a server does not respond or can lose plants that it has confirmed.")
	db := f.database()
	asJSON := f.Bool("json", false, "print a JSON object")
	count := f.Bool("count", false, "count the plants of a large database too, which can take minutes")
	if _, err := f.parse(args); err != nil {
		return err
	}
	var status any
	var err error
	switch {
	case postgres.IsURL(*db):
		var s *postgres.Status
		if s, err = postgres.ReadStatus(ctx, *db, *count); s == nil {
			return err
		}
		status = s
	case isURL(*db):
		_, err := openStore(ctx, *db, false)
		return err
	default:
		if err := mustExist(*db); err != nil {
			return err
		}
		var s *sqlite.Status
		if s, err = sqlite.ReadStatus(*db, *count); s == nil {
			return err
		}
		status = s
	}
	if *asJSON {
		err = errors.Join(json.MarshalWrite(env.stdout, status, jsontext.WithIndent("  ")), err)
		fmt.Fprintln(env.stdout)
		return err
	}
	w := table(env.stdout)
	switch s := status.(type) {
	case *postgres.Status:
		printPostgres(w, s)
	case *sqlite.Status:
		printSQLite(w, s)
	}
	return errors.Join(w.Flush(), err)
}

func printPostgres(w io.Writer, s *postgres.Status) {
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
	fmt.Fprint(w, "\nSERVER\tROLE\tSTATE\tSHARDS\tSIZE\tFSYNC\tFULL_PAGE_WRITES\tSYNCHRONOUS_COMMIT\tENCODING\n")
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
	fmt.Fprintf(w, "file\t%s: %d pages of %d bytes, %d of them free\n", size(s.Bytes), s.Pages, s.PageSize, s.FreePages)
	fmt.Fprintf(w, "write-ahead log\t%s\n", size(s.WALBytes))
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
