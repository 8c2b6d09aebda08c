package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore/test/testkit/missing"
)

// Cluster is a Citus cluster of servers on this machine.
type Cluster struct {
	*Server // the coordinator
	Workers []*Server

	mu       sync.Mutex
	prepared []string            // names of databases that last as long as this process
	free     map[string][]string // URLs of prepared databases that no test uses, by what prepared them
}

const sharedWorkers = 2

// SharedCluster returns the cluster with two workers of the run, or else the one of this package. It requires Main. A
// test that stops or configures a node uses StartCluster.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	bin := citusBinaries(t)
	return sharedCluster.get(t, func() (c *Cluster, err error) {
		nodes, err := running(clusterVariable, bin)
		if c = newCluster(nodes); err == nil && c == nil {
			c, err = startCluster(bin, sharedFolder(), sharedWorkers, sharedSettings)
		}
		if err == nil {
			c.shared = true
		}
		return c, err
	})
}

// StartCluster starts a cluster for one test, with the given settings on every node, and stops it when the test
// ends.
func StartCluster(t testing.TB, workers int, settings map[string]string) *Cluster {
	t.Helper()
	c, err := startCluster(citusBinaries(t), os.TempDir(), workers, settings)
	if err != nil {
		t.Fatal("start Citus: ", err)
	}
	t.Cleanup(func() {
		if err := removeAll(c.Nodes()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// HasCitus reports whether tests use Citus: it is installed, and the tests are not the short ones of make test.
func HasCitus() bool { return !testing.Short() && findCitus() != "" }

func citusBinaries(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs this")
	}
	dir := findCitus()
	if dir == "" {
		missing.Optional(t, "Citus is not installed on this machine: install the extension citus for PostgreSQL")
	}
	return dir
}

func findCitus() string { return directoryWith("../lib/citus.so") }

func startCluster(bin, folder string, workers int, settings map[string]string) (_ *Cluster, err error) {
	all := map[string]string{
		"shared_preload_libraries": "citus",
		"citus.node_conninfo":      "sslmode=disable",
		"max_worker_processes":     "128", // Citus uses one for each database
		"wal_level":                "logical",
	}
	maps.Copy(all, settings)
	nodes, errs := make([]*Server, workers+1), make([]error, workers+1)
	var starts sync.WaitGroup
	for i := range nodes {
		starts.Go(func() { nodes[i], errs[i] = start(bin, folder, all) })
	}
	starts.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, removeAll(nodes))
	}
	return newCluster(nodes), nil
}

// newCluster returns nil if there are no nodes.
func newCluster(nodes []*Server) *Cluster {
	if len(nodes) == 0 {
		return nil
	}
	return &Cluster{Server: nodes[0], Workers: nodes[1:], free: map[string][]string{}}
}

// Nodes returns the coordinator and the workers.
func (c *Cluster) Nodes() []*Server { return append([]*Server{c.Server}, c.Workers...) }

// removeShared removes the cluster if this process has started it, and otherwise what it has left there.
func (c *Cluster) removeShared() (err error) {
	if c == nil {
		return nil
	}
	if c.process != nil {
		return removeAll(c.Nodes())
	}
	for _, name := range c.prepared {
		err = errors.Join(err, c.drop(name))
	}
	return err
}

// Database creates an empty database on every node, makes the nodes a cluster and returns the URL of the database on
// the coordinator. A shared cluster drops it when the test ends.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	name := newName()
	if err := c.create(name); err != nil {
		t.Fatal(err)
	}
	if c.shared {
		t.Cleanup(func() {
			if err := c.drop(name); err != nil {
				t.Error(err)
			}
		})
	}
	return c.URL(name)
}

func (c *Cluster) create(name string) error {
	err := c.onEachNode(func(node *Server) error {
		if _, err := node.Attempt("postgres", "CREATE DATABASE "+name); err != nil {
			return err
		}
		_, err := node.Attempt(name, "CREATE EXTENSION citus")
		return err
	})
	if err != nil {
		return err
	}
	join := fmt.Sprintf("SELECT citus_set_coordinator_host('127.0.0.1', %d)", c.Port)
	for _, w := range c.Workers {
		join += fmt.Sprintf("; SELECT citus_add_node('127.0.0.1', %d)", w.Port)
	}
	return c.alone(func() error {
		_, err := c.Attempt(name, join)
		return err
	})
}

func (c *Cluster) drop(name string) error {
	return c.onEachNode(func(node *Server) error { return node.drop(name) })
}

func (c *Cluster) onEachNode(do func(*Server) error) error {
	errs := make([]error, 1+len(c.Workers))
	var wg sync.WaitGroup
	for i, node := range c.Nodes() {
		wg.Go(func() { errs[i] = do(node) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// alone runs do while no other process does: citus_add_node changes the roles of a server, which fails if another
// session does so too.
func (c *Cluster) alone(do func() error) error {
	conn, err := pgx.Connect(context.Background(), c.SocketURL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.Background()) // which releases the lock
	if _, err := conn.Exec(context.Background(), "SELECT pg_advisory_lock(1)"); err != nil {
		return err
	}
	return do()
}

// Prepared returns the URL of a database with empty tables that prepare has prepared. A new database takes seconds, so
// tests that pass the same name use the same database, one after the other.
func (c *Cluster) Prepared(t testing.TB, name string, prepare func(address string)) (address string) {
	t.Helper()
	c.mu.Lock()
	if free := c.free[name]; len(free) > 0 {
		address, c.free[name] = free[0], free[1:]
	}
	c.mu.Unlock()
	if address == "" {
		name := newName()
		if err := c.create(name); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		c.prepared = append(c.prepared, name)
		c.mu.Unlock()
		address = c.URL(name)
		prepare(address)
	}
	t.Cleanup(func() {
		if _, err := c.Attempt(Name(address), "TRUNCATE plants, tokens"); err != nil {
			t.Error(err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.free[name] = append(c.free[name], address)
	})
	return address
}

// Worker returns the URL on a worker of a database of the coordinator.
func (c *Cluster) Worker(i int, coordinatorURL string) string {
	return strings.Replace(coordinatorURL, fmt.Sprintf(":%d/", c.Port), fmt.Sprintf(":%d/", c.Workers[i].Port), 1)
}
