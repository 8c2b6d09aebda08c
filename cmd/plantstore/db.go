package main

import (
	"context"
	"errors"
	"fmt"

	"plantstore/internal/store/postgres"
)

const aboutDistribute = `Distributes the plants of a PostgreSQL database over the nodes of its Citus cluster, and
copies its tokens to every node. It changes everything or nothing, and can be repeated, also with another column
or number of shards. Processes of serve may run meanwhile: requests wait or get 503, and no plant is lost.`

func dbDistribute(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "db distribute", "--db URL [flags]", aboutDistribute)
	db := f.database()
	by := f.String("by", "", "`column` that decides where a plant is: id for few large stores, store for many stores "+
		"(default: as it is, or id)")
	shards := f.Int("shards", 0, "`number` of shards (default: as it is, or 2 for each worker and at least 4)")
	if _, err := f.parse(args); err != nil {
		return err
	}
	switch {
	case *by != "" && *by != "id" && *by != "store":
		return f.usageError("--by is %q: use id or store", *by)
	case *shards < 0 || *shards > postgres.MaxShards:
		return f.usageError("--shards is %d: use 1 to %d", *shards, postgres.MaxShards)
	case !postgres.IsURL(*db):
		return errors.New("--db must be the postgres:// URL of the coordinator of a Citus cluster")
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	return postgres.Distribute(ctx, *db, postgres.Distribution{By: *by, Shards: *shards}, func(sentence string) {
		fmt.Fprintln(env.stdout, sentence)
	})
}
