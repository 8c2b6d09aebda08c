package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"plantstore/internal/storage"
	"plantstore/internal/storage/citus"
	"plantstore/internal/storage/postgres"
)

func dbCommands(env environment) *cobra.Command {
	return group("db", `
Migrate the schema of a database, or distribute it over a cluster.`, `
  plantstore db migrate`,
		dbMigrateCommand(env), dbDistributeCommand(env))
}

func dbDistributeCommand(env environment) *cobra.Command {
	f := env.command("distribute --db URL", `
Distribute a PostgreSQL database over its Citus cluster. Plants are distributed over the nodes, and
tokens are copied to every node.

It is one transaction, and can be repeated to change the column or the number of shards. The service
may run meanwhile: requests wait or return 503, and no plant is lost.`, `
  plantstore db distribute --db postgres://plants@db.example/plants --by store --shards 32`)
	db := f.database()
	var o citus.Distribution
	f.Lookup("db").Usage, f.Lookup("db").DefValue = "`URL` of the coordinator: postgres://…", ""
	f.StringVar(&o.By, "by", "", "`column` that determines the shard of a plant: id for a few\nlarge stores, store for "+
		"many\n(default: unchanged, or id if plants is not distributed)")
	f.IntVar(&o.Shards, "shards", 0,
		"`number` of shards\n(default: unchanged, or 1 for each worker and at least 2)")
	return f.runs(func(ctx context.Context) error {
		switch err := checkDatabase("--db", *db); {
		case err != nil:
			return err
		case o.By != "" && o.By != "id" && o.By != "store":
			return usagef("--by is %q: use id or store", o.By)
		case o.Shards < 0 || o.Shards > citus.MaxShards:
			return usagef("--shards is %d: use 1 to %d", o.Shards, citus.MaxShards)
		case !postgres.IsURL(*db):
			return usagef("--db must be the postgres:// URL of the coordinator of a Citus cluster")
		}
		ctx, stop := untilSignal(ctx)
		defer stop()
		return citus.Distribute(ctx, *db, o, func(sentence string) { fmt.Fprintln(env.stdout, sentence) })
	})
}

func dbMigrateCommand(env environment) *cobra.Command {
	f := env.command("migrate", `
Migrate the schema of a database to this version of the program. The migration is one transaction.
The only way back is a backup: make one first. serve also migrates the schema. Other commands refuse
an older schema, except backup and doctor.`, `
  plantstore db migrate --db plants.db
  plantstore db migrate --db postgres://plants@db.example/plants`)
	db := f.database()
	return f.runs(func(ctx context.Context) error {
		return env.withStorage(ctx, *db, migrates, func(st storage.Storage) error {
			text := "The schema has version %[2]d: nothing to do.\n"
			from, to := st.Migrated()
			if from < to {
				text = "The schema was migrated from version %d to %d.\n"
			}
			_, err := fmt.Fprintf(env.stdout, text, from, to)
			return err
		})
	})
}
