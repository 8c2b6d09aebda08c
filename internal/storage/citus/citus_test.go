package citus

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // the tests wait most of the time
	os.Exit(pgtest.Main(m))
}

// patient are timeouts that a slow machine does not reach.
var patient = postgres.Timeouts{Write: 2 * time.Minute, Attempt: time.Minute, Read: time.Minute}

// openStorage opens a database of a cluster, and closes it when the test ends.
func openStorage(t testing.TB, address string, timeouts postgres.Timeouts) *Storage {
	t.Helper()
	s, err := Open(t.Context(), address+"&connect_timeout=60", postgres.Options{Timeouts: timeouts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*Storage)
}

// wantOpenError fails the test if Open succeeds or its error does not contain a text.
func wantOpenError(t *testing.T, address, text string) {
	t.Helper()
	s, err := Open(t.Context(), address, postgres.Options{})
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("Open() = %v, want an error that contains %q", err, text)
	}
}

func create(t testing.TB, s storage.Storage, ids ...int) {
	t.Helper()
	var batch []plant.Record
	for _, id := range ids {
		batch = append(batch, record(id))
	}
	if _, err := s.CreateBatch(t.Context(), batch); err != nil {
		t.Fatalf("CreateBatch(%d plants) = %v", len(batch), err)
	}
}

func record(id int) plant.Record {
	return storagetest.Record("main", int64(id), fmt.Sprint("plant ", id), "-")
}

// distributed returns the URL of a database of the shared cluster whose plants are distributed by a column.
func distributed(t testing.TB, by string) string {
	t.Helper()
	c := pgtest.SharedCluster(t)
	return c.Prepared(t, by, func(address string) {
		distributeBy(t, address, by)
		for _, sql := range []string{"CREATE ROLE %s LOGIN PASSWORD '" + pgtest.Password + "'",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON plants, tokens TO %s", "GRANT SELECT ON plantstore_schema TO %s"} {
			c.Query(t, pgtest.Name(address), fmt.Sprintf(sql, limitedUser(address)))
		}
	})
}

// limitedUser is a user with the privileges that serve needs on a database of distributed.
func limitedUser(address string) string { return "gardener_" + pgtest.Name(address) }

func distributeBy(t testing.TB, address, by string) {
	t.Helper()
	distributeTo(t, address, Distribution{By: by, Shards: 4})
}

// A cluster keeps the promises of a store, on the coordinator, on a worker, and behind a pooler, for a user with the
// privileges of its statements, which were granted on the coordinator.
func TestStorage(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"id", "store"} {
		t.Run("by "+by, func(t *testing.T) {
			t.Parallel()
			c := pgtest.SharedCluster(t)
			runStoragetest(t, func(t *testing.T) (first, again string) {
				address := distributed(t, by)
				address = pgtest.As(address, limitedUser(address))
				return address, c.Worker(0, address)
			})
		})
	}
	t.Run("behind a pooler", func(t *testing.T) {
		t.Parallel()
		pooler := pgtest.StartPooler(t, pgtest.SharedCluster(t).Server, "transaction")
		runStoragetest(t, func(t *testing.T) (first, again string) {
			address := pooler.URL(pgtest.Name(distributed(t, "id")))
			return address, address
		})
	})
}

// runStoragetest runs the suite of all engines: see storagetest.RunOn.
func runStoragetest(t *testing.T, database func(t *testing.T) (first, again string)) {
	open := func(t *testing.T, address string) storage.Storage { return openStorage(t, address, patient) }
	storagetest.RunOn(t, database, open)
}

// The layout follows the cluster with each Check, and results are correct before it does.
func TestLayoutFollowsTheCluster(t *testing.T) {
	t.Parallel()
	address := pgtest.SharedCluster(t).Database(t)
	s := openStorage(t, address, patient)
	want := func(servers, shards int) {
		t.Helper()
		create(t, s, 1, 2, 3)
		pgtest.Eventually(t, fmt.Sprintf("there are %d shards on %d servers", shards, servers), func() bool {
			s.Check(t.Context())
			seen := map[[2]int]bool{}
			on := map[int]bool{}
			for id := range 1000 {
				server, shard := s.Shard(plant.Key{Store: "main", ID: int64(id)})
				seen[[2]int{server, shard}], on[server] = true, true
			}
			return len(seen) == shards && len(on) == servers
		})
		create(t, s, 1, 4)
	}
	want(1, 1)
	for _, d := range []Distribution{{"id", 4}, {"store", 6}} {
		distributeTo(t, address, d)
		if d.By == "store" {
			want(1, 1) // all plants of the store are in one shard
		} else {
			want(2, d.Shards)
		}
	}
}

// Names are literals in an insert on Citus. None is executed, even if the URL makes a backslash an escape.
func TestLiterals(t *testing.T) {
	t.Parallel()
	s := openStorage(t, distributed(t, "id")+"&standard_conforming_strings=off", patient)
	for i, name := range []string{`\`, `\'`, `'`, `\');DROP TABLE plants;--`, `');DROP TABLE plants;--`} {
		want := storagetest.Record("main", int64(i), name, name)
		if _, err := s.CreateBatch(t.Context(), []plant.Record{want}); err != nil {
			t.Fatal(err)
		}
		storagetest.WantStored(t, s, want)
	}
}

// A cluster that can't be written is not opened, as a single server.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	wantOpenError(t, distributed(t, "id")+"&default_transaction_read_only=on", "read-only")
}

// If one edit of a batch over several shards fails, none is made, and nothing is unknown.
func TestEditsAreAtomic(t *testing.T) {
	t.Parallel()
	c := pgtest.SharedCluster(t)
	address := c.Prepared(t, "edits", func(address string) {
		distributeBy(t, address, "id")
		c.Query(t, pgtest.Name(address), "ALTER TABLE plants ADD CONSTRAINT valid CHECK (name <> 'invalid')")
	})
	s := openStorage(t, address, patient)
	create(t, s, 1, 2, 3)
	rename := func(id int, name string) plant.Edit {
		return plant.Edit{Key: plant.Key{Store: "main", ID: int64(id)}, To: &plant.Content{Name: name}}
	}
	outcomes, err := s.EditBatch(t.Context(), []plant.Edit{rename(1, "new"), rename(2, "invalid"), rename(3, "new")})
	if err == nil || errors.Is(err, storage.ErrUnknown) {
		t.Errorf("EditBatch() with an invalid edit = %v, %v, want an error that is not %v", outcomes, err, storage.ErrUnknown)
	}
	for id := 1; id <= 3; id++ {
		storagetest.WantStored(t, s, record(id))
	}
}

// A distributed table has triggers of Citus, and its shards are checked too, from every node.
func TestDrift(t *testing.T) {
	address := distributed(t, "id")
	c, name := pgtest.SharedCluster(t), pgtest.Name(address)
	both := []string{address, c.Worker(0, address)}
	for _, address := range both {
		openStorage(t, address, patient).Close()
		wantFindings(t, address, "tables ok: ")
	}
	c.Query(t, name, "SELECT run_command_on_shards('plants', 'ALTER TABLE %s SET UNLOGGED')")
	defer c.Query(t, name, "SELECT run_command_on_shards('plants', 'ALTER TABLE %s SET LOGGED')") // others use it next
	for _, address := range both {
		const problem = " is UNLOGGED, so a crash empties it; run ALTER TABLE plants_"
		wantOpenError(t, address, problem)
		wantFindings(t, address, problem)
		s, err := Open(t.Context(), address, postgres.Options{UnsafeDurability: true})
		if err != nil {
			t.Fatalf("Open() with unsafe durability = %v", err)
		}
		s.Close()
	}
}

// wantFindings diagnoses a database and fails the test if a text is missing. It returns the findings as lines.
func wantFindings(t *testing.T, address string, wanted ...string) (lines string) {
	t.Helper()
	for _, f := range Diagnose(t.Context(), address) {
		lines += f.Check + " " + f.Level + ": " + f.Text + "\n"
	}
	for _, want := range wanted {
		if !strings.Contains(lines, want) {
			t.Errorf("Diagnose() = %s\nwant %q", lines, want)
		}
	}
	return lines
}

// The migration changes a table that Citus has copied to every node. A worker can't migrate.
func TestMigration(t *testing.T) {
	address := distributed(t, "id")
	c, name := pgtest.SharedCluster(t), pgtest.Name(address)
	c.Query(t, name, "ALTER TABLE tokens DROP COLUMN last_used")
	c.Query(t, name, "DROP TABLE sandboxes, webhooks, events, deliveries, leases")
	c.Query(t, name, "DELETE FROM plantstore_schema WHERE version > 2")
	wantOpenError(t, c.Worker(0, address), "it is a worker of Citus, where the tables are missing or their schema is old")
	s := openStorage(t, address, patient)
	if from, to := s.Migrated(); from != 2 || to != 6 {
		t.Errorf("Migrated() = %d, %d, want 2, 6", from, to)
	}
	other, _ := token.New("other", "main", token.Create, time.Now(), time.Time{})
	if err := s.AddToken(t.Context(), other); err != nil {
		t.Errorf("AddToken() = %v", err)
	}
}

// An ERROR that a node relays proves that nothing is committed only if no server raises it after a commit.
func TestProvesRollback(t *testing.T) {
	for code, want := range map[string]bool{
		"23505": true, "53100": true, "55P03": true, "40P01": true, "42P01": true,
		"08006": false, "57P01": false, "58030": false, "XX000": false, "": false,
	} {
		if got := new(cluster).ProvesRollback(code); got != want {
			t.Errorf("ProvesRollback(%q) = %v, want %v", code, got, want)
		}
	}
}

// Plants that Citus keeps in the same shard have the same number of a shard, and others have other ones.
func TestShard(t *testing.T) {
	t.Parallel()
	ids := []int64{0, 1, -1, math.MaxInt32, math.MinInt32, 1 << 32, -1 << 32, math.MaxInt64, math.MinInt64}
	names := []string{"", "main", "twelve bytes", "Zoë", "\U0001FAB4", "\uFFFF"}
	for n := range 40 {
		ids = append(ids, rand.Int64(), -rand.Int64(), rand.Int64N(1000))
		names = append(names, strings.Repeat("x", n), strings.Repeat("é", n))
	}
	for by, sql := range map[string]string{
		"id":    "SELECT get_shard_id_for_distribution_column('plants', $1::bigint) FROM (SELECT $2::text) unused",
		"store": "SELECT get_shard_id_for_distribution_column('plants', $2::text) FROM (SELECT $1::bigint) unused",
	} {
		address := distributed(t, by)
		s := openStorage(t, address, patient)
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		numbers, shards := map[int64]int{}, map[int]int64{} // of shards, by their ids in Citus and the other way round
		for i, id := range ids {
			key := plant.Key{Store: names[i%len(names)], ID: id}
			var shard int64
			if err := conn.QueryRow(t.Context(), sql, key.ID, key.Store).Scan(&shard); err != nil {
				t.Fatal(err)
			}
			_, number := s.Shard(key)
			if known, ok := numbers[shard]; ok && (known != number || shards[number] != shard) {
				t.Errorf("by %s: plant %v is in shard %d, want %d", by, key, number, known)
			}
			numbers[shard], shards[number] = number, shard
		}
		if len(shards) != 4 {
			t.Errorf("by %s: %d shards, want 4", by, len(shards))
		}
	}
}

// A list does not end early while plants that it has found are removed: on several nodes it has no snapshot.
func TestListWhilePlantsAreRemoved(t *testing.T) {
	s := openStorage(t, distributed(t, "id"), patient)
	const removed, stay, limit = 1000, 10, 5
	var batch []plant.Record
	for id := range int64(removed + stay) {
		batch = append(batch, storagetest.Record("main", id, "fern", "-"))
	}
	if _, err := s.CreateBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for id := int64(0); err == nil && id < removed; id += limit {
			var edits []plant.Edit
			for n := range int64(limit) {
				edits = append(edits, plant.Edit{Key: plant.Key{Store: "main", ID: id + n}})
			}
			_, err = s.EditBatch(t.Context(), edits)
		}
		done <- err
	}()
	for {
		page, err := s.List(t.Context(), "main", nil, limit)
		if err != nil || len(page) != limit {
			t.Fatalf("List() = %d plants, %v, want %d: more follow", len(page), err, limit)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}
