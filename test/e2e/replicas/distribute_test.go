package replicas

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
)

// A database is distributed under traffic. The command is killed and repeated, and then changes the column and the
// number of shards. No acknowledged plant is lost, and no plant that was refused is stored.
func TestDistributeUnderTraffic(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	c := pgtest.SharedCluster(t)
	db := c.Database(t)
	p := testkit.Start(t, db)
	const others = 50_000 // plants of another store, so that it takes a while
	c.Query(t, testkit.DatabaseName(t, db), fmt.Sprintf(
		"INSERT INTO plants SELECT 'other', i, 'plant ' || i FROM generate_series(1, %d) AS i", others))
	tr := drive(t, p.Target())
	tr.Wait(t, enoughCreates)

	killed := testkit.Launch(t, exec.Command(testkit.Binary, "db", "distribute", "--db", db))
	testkit.WaitFor(t, "the command to distribute", func() bool {
		return strings.Contains(killed.Stdout.String(), "Distributing ")
	})
	killed.Kill()
	tr.Wait(t, enoughCreates)
	for _, flags := range []string{"", "--shards 6", "--by store", "--by id --shards 4"} {
		args := append([]string{"db", "distribute", "--db", db}, strings.Fields(flags)...)
		out, errs, code := testkit.Run(t, nil, args...)
		done := strings.Contains(out, "Done: ") || flags == "" && strings.Contains(out, "Nothing to do: ") // killed too late
		if code != 0 || !done || errs != "" {
			t.Fatalf("db distribute %s: exit %d, %s%s", flags, code, out, errs)
		}
		tr.Wait(t, enoughCreates)
	}
	tr.stop()
	tr.CheckMany(t, p.Target())
	for _, node := range c.Nodes() {
		rows := node.Query(t, testkit.DatabaseName(t, db), "SELECT count(*) FROM plants WHERE store = 'other'")
		if got := rows[0][0]; got != fmt.Sprint(others) {
			t.Errorf("the node at port %d counts %s plants of the other store, want %d", node.Port, got, others)
		}
	}
}
