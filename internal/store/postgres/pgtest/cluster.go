package pgtest

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"plantstore/internal/testkit/missing"
)

// Cluster is a Citus cluster of servers on this machine.
type Cluster struct {
	*Server // the coordinator
	Workers []*Server

	join sync.Mutex // citus_add_node changes the roles of a server, which fails if another session does so too
	mu   sync.Mutex
	free map[string][]string // URLs of databases that no test uses, by what prepared them
}

const sharedWorkers = 2

var sharedCluster struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// SharedCluster returns the cluster with two workers that the tests of a package share, and starts it when it is
// first called. It requires Main. A test that stops or locks a node uses StartCluster.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	bin := citusBinaries(t)
	sharedCluster.once.Do(func() { sharedCluster.cluster, sharedCluster.err = startCluster(bin, sharedWorkers, nil) })
	if sharedCluster.err != nil {
		t.Fatal("start Citus: ", sharedCluster.err)
	}
	return sharedCluster.cluster
}

// StartCluster starts a cluster for one test, with the given settings on every node, and stops it when the test
// ends.
func StartCluster(t testing.TB, workers int, settings map[string]string) *Cluster {
	t.Helper()
	c, err := startCluster(citusBinaries(t), workers, settings)
	if err != nil {
		t.Fatal("start Citus: ", err)
	}
	t.Cleanup(func() {
		if err := c.remove(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// HasCitus reports whether a PostgreSQL with the extension is installed.
func HasCitus() bool { return findCitus() != "" }

func citusBinaries(t testing.TB) string {
	t.Helper()
	dir := findCitus()
	if dir == "" {
		missing.Optional(t, "Citus is not installed on this machine: install the extension citus for PostgreSQL")
	}
	return dir
}

func findCitus() string {
	for _, dir := range allBinaries("/usr/lib/postgresql/*/bin") {
		if _, err := os.Stat(filepath.Join(dir, "../lib/citus.so")); err == nil {
			return dir
		}
	}
	return ""
}

func startCluster(bin string, workers int, settings map[string]string) (_ *Cluster, err error) {
	all := map[string]string{
		"shared_preload_libraries": "citus",
		"citus.node_conninfo":      "sslmode=disable",
		"max_worker_processes":     "128", // Citus uses one for each database
		"wal_level":                "logical",
	}
	for name, value := range settings {
		all[name] = value
	}
	nodes, errs := make([]*Server, workers+1), make([]error, workers+1)
	var starts sync.WaitGroup
	for i := range nodes {
		starts.Go(func() { nodes[i], errs[i] = start(bin, all) })
	}
	starts.Wait()
	c := &Cluster{Server: nodes[0], Workers: nodes[1:], free: map[string][]string{}}
	for _, err := range errs {
		if err != nil {
			_ = c.remove()
			return nil, err
		}
	}
	return c, nil
}

// Nodes returns the coordinator and the workers.
func (c *Cluster) Nodes() []*Server { return append([]*Server{c.Server}, c.Workers...) }

func (c *Cluster) remove() (err error) {
	for _, node := range c.Nodes() {
		if node == nil {
			continue
		}
		if e := node.remove(); e != nil {
			err = e
		}
	}
	return err
}

// Database creates an empty database on every node, makes the nodes a cluster and returns the URL of the database on
// the coordinator.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", c.databases.Add(1))
	var creates sync.WaitGroup
	for _, node := range c.Nodes() {
		creates.Go(func() {
			if err := node.createCitusDatabase(name); err != nil {
				t.Error(err)
			}
		})
	}
	creates.Wait()
	join := fmt.Sprintf("SELECT citus_set_coordinator_host('127.0.0.1', %d)", c.Port)
	for _, w := range c.Workers {
		join += fmt.Sprintf("; SELECT citus_add_node('127.0.0.1', %d)", w.Port)
	}
	c.join.Lock()
	defer c.join.Unlock()
	c.Query(t, name, join)
	return c.URL(name)
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
		address = c.Database(t)
		prepare(address)
	}
	t.Cleanup(func() {
		if _, err := c.query(nameOf(address), "TRUNCATE plants, tokens"); err != nil {
			t.Error(err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.free[name] = append(c.free[name], address)
	})
	return address
}

func nameOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

func (s *Server) createCitusDatabase(name string) error {
	if _, err := s.query("postgres", "CREATE DATABASE "+name); err != nil {
		return err
	}
	_, err := s.query(name, "CREATE EXTENSION citus")
	return err
}

// Worker returns the URL on a worker of a database of the coordinator.
func (c *Cluster) Worker(i int, coordinatorURL string) string {
	return strings.Replace(coordinatorURL, fmt.Sprintf(":%d/", c.Port), fmt.Sprintf(":%d/", c.Workers[i].Port), 1)
}
