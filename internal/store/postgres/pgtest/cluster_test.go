package pgtest

import "testing"

// A database of the cluster has all its nodes, and a table can be distributed over them and read on each.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := SharedCluster(t)
	database := nameOf(c.Database(t))
	c.Query(t, database, "CREATE TABLE numbers (n bigint PRIMARY KEY)")
	c.Query(t, database, "SELECT create_distributed_table('numbers', 'n', shard_count => 4)")
	c.Query(t, database, "INSERT INTO numbers SELECT generate_series(1, 100)")
	for _, node := range c.Nodes() {
		if got := node.Query(t, database, "SELECT count(*) FROM numbers")[0][0]; got != "100" {
			t.Errorf("the node at port %d counts %s rows, want 100", node.Port, got)
		}
	}
}
