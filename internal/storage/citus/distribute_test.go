package citus

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"plantstore/internal/storage/postgres"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
)

// distributeTo distributes a database and returns what was reported.
func distributeTo(t testing.TB, address string, want Distribution) string {
	t.Helper()
	var reports []string
	if err := Distribute(t.Context(), address, want, func(s string) { reports = append(reports, s) }); err != nil {
		t.Fatalf("Distribute(%v) = %v", want, err)
	}
	return strings.Join(reports, "\n")
}

func wantDistributeError(t *testing.T, address, text string) {
	t.Helper()
	err := Distribute(t.Context(), address, Distribution{}, func(string) {})
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("Distribute() = %v, want %q", err, text)
	}
}

const tables = `
	SELECT table_name, citus_table_type, distribution_column, shard_count FROM citus_tables ORDER BY table_name::text`

func TestDistribute(t *testing.T) {
	t.Parallel()
	c := pgtest.SharedCluster(t)
	address := c.Database(t)
	name := pgtest.Name(address)
	s := openStorage(t, address, patient)
	for id := range 20 {
		create(t, s, id)
	}
	issued, _ := token.New("issued", "main", token.Create, time.Now(), time.Time{})
	if err := s.AddToken(t.Context(), issued); err != nil {
		t.Fatal(err)
	}
	c.Query(t, name, "GRANT SELECT ON plants TO pg_monitor")
	for _, test := range []struct {
		want    Distribution
		column  string
		shards  int
		reports []string
	}{
		{Distribution{}, "id", 2, []string{
			"Copying tokens to every node.",
			"Copying plantstore_schema to every node.",
			"Distributing plants by id (shards: 2, nodes: 2). Requests wait or return 503 meanwhile.",
			"Done: distributed plants by id (shards: 2), and copied the other tables to every node."}},
		{Distribution{}, "id", 2, []string{
			"Nothing to do: plants are distributed by id (shards: 2), and the other tables are on every node."}},
		{Distribution{Shards: 6}, "id", 6, []string{
			"Distributing plants by id (shards: 6, nodes: 2). Requests wait or return 503 meanwhile.",
			"Done: distributed plants by id (shards: 6), and copied the other tables to every node."}},
		{Distribution{By: "store", Shards: 1}, "store", 1, []string{
			"Distributing plants by store (shards: 1, nodes: 2). Requests wait or return 503 meanwhile.",
			"Done: distributed plants by store (shards: 1), and copied the other tables to every node."}},
	} {
		if got := distributeTo(t, address, test.want); got != strings.Join(test.reports, "\n") {
			t.Errorf("Distribute(%v) reports %s\nwant %q", test.want, got, test.reports)
		}
		want := fmt.Sprintf("[[plants distributed %s %d] [plantstore_schema reference <none> 1] [tokens reference <none> 1]]",
			test.column, test.shards)
		if got := fmt.Sprint(c.Query(t, name, tables)); got != want {
			t.Errorf("Distribute(%v): tables = %s, want %s", test.want, got, want)
		}
		for _, table := range postgres.Tables {
			if n := c.Query(t, name, "SELECT pg_relation_size('"+table+"')")[0][0]; n != "0" {
				t.Errorf("Distribute(%v) leaves %s bytes in the local table %s", test.want, n, table)
			}
		}
		if n := c.Query(t, name, "SELECT has_table_privilege('pg_monitor', 'plants', 'SELECT')")[0][0]; n != "t" {
			t.Errorf("Distribute(%v) removes privileges", test.want)
		}
		for i := range c.Workers {
			worker := c.Workers[i].Query(t, name, "SELECT (SELECT count(*) FROM plants), (SELECT count(*) FROM tokens)")
			if fmt.Sprint(worker) != "[[20 1]]" {
				t.Errorf("a worker counts %v plants and tokens, want 20 and 1", worker)
			}
		}
		storagetest.WantStored(t, s, record(7))
	}
}

// Nothing changes if the command is interrupted, and it can be repeated.
func TestDistributeFails(t *testing.T) {
	t.Parallel()
	c := pgtest.SharedCluster(t)
	address := c.Database(t)
	name := pgtest.Name(address)
	create(t, openStorage(t, address, patient), 1, 2, 3)
	ctx, cancel := context.WithCancel(t.Context())
	err := Distribute(ctx, address, Distribution{}, func(report string) {
		if strings.HasPrefix(report, "Distributing ") {
			cancel()
		}
	})
	if err == nil || !strings.HasSuffix(err.Error(), ": interrupted; run the command again to complete it") {
		t.Errorf("Distribute() that is interrupted = %v", err)
	}
	if got := c.Query(t, name, tables); len(got) != 0 {
		t.Errorf("Distribute() that is interrupted leaves %v", got)
	}
	// Only a part was done, by hand.
	c.Query(t, name, "SELECT create_reference_table('tokens')")
	c.Query(t, name, "SELECT citus_add_local_table_to_metadata('plantstore_schema')")
	if got := distributeTo(t, address, Distribution{}); !strings.Contains(got, "Done: distributed plants") {
		t.Errorf("Distribute() again = %s", got)
	}
}

func TestDistributeRefuses(t *testing.T) {
	t.Parallel()
	wantDistributeError(t, pgtest.Database(t), "the database does not have the extension citus; install Citus on every ")
	wantDistributeError(t, "file.db", "the address is not a PostgreSQL URL")

	c := pgtest.SharedCluster(t)
	address := c.Database(t)
	name := pgtest.Name(address)
	c.Query(t, name, "SELECT citus_remove_node(nodename, nodeport) FROM pg_dist_node ORDER BY groupid DESC")
	wantDistributeError(t, address, "the cluster has no workers; add each one, on the coordinator, with "+
		"SELECT citus_add_node('10.0.0.2', 5432)")
	addNode := fmt.Sprintf("SELECT citus_add_node('127.0.0.1', %d)", c.Workers[0].Port)
	pgtest.Eventually(t, "the worker is added", func() bool { // another test may do so at the same time
		_, err := c.Attempt(name, addNode)
		return err == nil
	})
	wantDistributeError(t, c.Worker(0, address), "this node is a worker; use the URL of the coordinator")
	wantDistributeError(t, address, "the workers do not have the address of the coordinator; run "+
		"SELECT citus_set_coordinator_host('10.0.0.1', 5432) there, with an address that the workers can reach")
	c.Query(t, name, fmt.Sprintf("SELECT citus_set_coordinator_host('127.0.0.1', %d)", c.Port))

	openStorage(t, address, patient).Close()
	c.Query(t, name, fmt.Sprintf("CREATE ROLE other LOGIN PASSWORD '%s'", pgtest.Password))
	c.Query(t, name, "GRANT SELECT ON plants, tokens, plantstore_schema TO other")
	wantDistributeError(t, pgtest.As(address, "other"), "lacks a privilege: ERROR: permission denied for table plants")
	c.Workers[0].Query(t, name, "CREATE TABLE tokens (name text)")
	wantDistributeError(t, address, fmt.Sprintf("relation \"tokens\" already exists "+
		"(while executing command on 127.0.0.1:%d); drop the table there", c.Workers[0].Port))
	c.Workers[0].Query(t, name, "DROP TABLE tokens")
	c.Query(t, name, "SELECT create_reference_table('plants')")
	wantDistributeError(t, address, "run SELECT undistribute_table('plants') and repeat this command")
	c.Query(t, name, "SELECT undistribute_table('plants')")
	distributeTo(t, address, Distribution{})
}
