package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit/proxy"
)

var safe = settings{"on", "on", "on", "UTF8"}

// readNodes returns the state of the nodes of the cluster at a URL.
func readNodes(t *testing.T, address string) (nodes []node, err error) {
	t.Helper()
	config, err := parseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	conn := newNodeConn(config.ConnConfig, quick)
	defer conn.close()
	return conn.nodes(t.Context())
}

func workerName(w *pgtest.Server) string { return fmt.Sprintf("worker 127.0.0.1:%d", w.Port) }

// Every user can read the settings of all nodes, on every node.
func TestNodes(t *testing.T) {
	t.Parallel()
	c := pgtest.SharedCluster(t)
	address := c.Database(t)
	user := "asker_" + databaseOf(t, address)
	c.Query(t, databaseOf(t, address), fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", user, pgtest.Password))
	for _, address := range []string{address, c.Worker(0, address), c.Worker(1, address)} {
		as := editURL(t, address, func(u *url.URL, _ url.Values) { u.User = url.UserPassword(user, pgtest.Password) })
		for _, address := range []string{address, as} {
			eventually(t, "all nodes respond", func() bool { // on a slow machine, perhaps not the first time
				nodes, err := readNodes(t, address)
				return err == nil && len(nodes) == 3 && nodes[0].coordinator && nodesError(nodes, Options{}) == nil &&
					nodes[0].settings == safe && nodes[1].settings == safe && nodes[2].settings == safe
			})
		}
	}
	if nodes, err := readNodes(t, pgtest.Database(t)); err != nil || nodes != nil {
		t.Errorf("nodes of a plain server = %v, %v", nodes, err)
	}
}

// A worker can hang after it has accepted a connection. Then the nodes are queried one after the other.
func TestWorkerHangsAfterConnect(t *testing.T) {
	t.Parallel()
	c := pgtest.SharedCluster(t)
	address := c.Database(t)
	p := proxy.New(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Workers[0].Port)))
	_, port, _ := net.SplitHostPort(p.Address)
	c.Query(t, databaseOf(t, address), fmt.Sprintf(
		"SELECT citus_update_node(nodeid, nodename, %s) FROM pg_dist_node WHERE nodeport = %d", port, c.Workers[0].Port))
	p.Set(func(chunk *proxy.Chunk) ([]byte, bool) {
		if chunk.Direction == proxy.Requests && bytes.Contains(chunk.Data, []byte("full_page_writes")) {
			select {
			case <-chunk.Removed:
			case <-time.After(time.Minute):
			}
		}
		return chunk.Data, true
	})
	eventually(t, "one worker does not respond", func() bool { // on a slow machine, others may not respond either
		nodes, err := readNodes(t, address)
		reasons := map[string]string{}
		for _, n := range nodes {
			reasons[n.name()] = n.reason
		}
		return err == nil && maps.Equal(reasons, map[string]string{
			"coordinator " + net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)): "",
			workerName(c.Workers[1]): "", "worker " + p.Address: "no response within 500ms",
		})
	})
}

// The faults of workers, one after the other on one cluster.
func TestFaultsOfWorkers(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 2, nil)
	for _, test := range []struct {
		name string
		test func(t *testing.T, c *pgtest.Cluster, address string)
	}{
		{"unsafe settings", testUnsafeWorkers},
		{"no standby", testWorkersWithoutStandby},
		{"status", testDiagnosisOfCluster},
		{"down", testWorkerIsDown},
	} {
		t.Run(test.name, func(t *testing.T) { test.test(t, c, c.Database(t)) })
	}
}

// A worker that can lose what it confirms is refused, also while the store is open.
func testUnsafeWorkers(t *testing.T, c *pgtest.Cluster, address string) {
	distributeBy(t, address, "id")
	worker := c.Workers[1]
	s := openStore(t, address)
	for i, test := range []struct{ setting, value, risk string }{
		{"fsync", "off", "a power loss can destroy the database"},
		{"synchronous_commit", "local", "plants can be lost after they were confirmed"},
	} {
		create(t, s, record(10*i))
		reload(t, worker, test.setting, test.value)
		text := fmt.Sprintf("%s runs with %s=%s, so %s; set it to on or, if that loss is acceptable, "+
			"start with --unsafe-durability", workerName(worker), test.setting, test.value, test.risk)
		wantOpenError(t, address, text)
		wantOpenError(t, c.Worker(0, address), text)
		accepted, err := Open(t.Context(), address, Options{UnsafeDurability: true})
		if err != nil {
			t.Fatalf("Open() with UnsafeDurability = %v", err)
		}
		create(t, accepted, record(10*i+1))
		accepted.Close()
		eventually(t, "creates are refused although nothing calls Check", func() bool {
			_, err := s.CreateBatch(t.Context(), []plant.Record{record(10*i + 2)})
			return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), text)
		})
		if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), text) {
			t.Errorf("Check() = %v, want %q", err, text)
		}
		reload(t, worker, test.setting, "")
		eventually(t, "Check returns nil again", func() bool { return s.Check(t.Context()) == nil })
		create(t, s, record(10*i+2))
	}
}

// A plant that is on the disk of a worker, but not on its synchronous standby, is not confirmed: neither to the client
// that created it, nor to one that repeats the create.
func testWorkersWithoutStandby(t *testing.T, c *pgtest.Cluster, address string) {
	distributeBy(t, address, "id")
	s := openStore(t, address)
	create(t, s, record(1), record(2), record(3), record(4)) // opens the connections to the workers
	for _, w := range c.Workers {
		reload(t, w, "synchronous_standby_names", "nobody")
	}
	s.timeouts = quick
	const cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity " +
		"WHERE wait_event = 'SyncRep' AND query LIKE '%plants%'"
	for _, attempt := range []string{"create", "repeat"} {
		created := make(chan error, 1)
		go func() {
			_, err := s.CreateBatch(context.Background(), []plant.Record{record(9)})
			created <- err
		}()
		for end := false; !end; {
			select {
			case err := <-created:
				if !errors.Is(err, store.ErrUnknown) {
					t.Errorf("%s = %v, want %v", attempt, err, store.ErrUnknown)
				}
				end = true
			case <-time.After(20 * time.Millisecond):
				for _, w := range c.Workers {
					w.Query(t, databaseOf(t, address), cancel)
				}
			}
		}
	}
	for _, w := range c.Workers {
		reload(t, w, "synchronous_standby_names", "")
	}
	s.timeouts = patient
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(9)})
	wantOutcomes(t, outcomes, err, plant.Same)
}

func testDiagnosisOfCluster(t *testing.T, c *pgtest.Cluster, address string) {
	wantFindings(t, diagnose(t, address), "server ok: PostgreSQL ", ", Citus ")
	create(t, openStore(t, address), plantRecords(100)...)
	wantFindings(t, diagnose(t, address), "distribution warning: all plants are on the coordinator; ")
	distributeTo(t, address, Distribution{Shards: 4})
	for _, address := range []string{address, c.Worker(0, address)} {
		lines := diagnose(t, address)
		wantFindings(t, lines, "distribution ok: by id, 4 shards", "contents ok: 100 plants in ", "tables ok: ")
		if n := strings.Count(lines, "durability ok: "); n != 3 || strings.Contains(lines, "problem") {
			t.Errorf("Diagnose() = %s", lines)
		}
	}
	worker := c.Workers[1]
	worker.Exec(t, "ALTER DATABASE "+databaseOf(t, address)+" SET synchronous_commit = off")
	wantFindings(t, diagnose(t, address), "durability problem: "+workerName(worker)+" runs with synchronous_commit=off",
		"contents ok: ")
	if err := worker.Suspend(); err != nil {
		t.Fatal(err)
	}
	defer worker.Resume()
	wantFindings(t, diagnose(t, address), "durability problem: "+workerName(worker)+" does not respond: ",
		"durability ok: coordinator ", "schema ok: ")
}

// A worker that is down is named, and prevents a distribution but not a start. The database is complete afterwards.
func testWorkerIsDown(t *testing.T, c *pgtest.Cluster, address string) {
	s := openStore(t, address)
	worker := c.Workers[0]
	if err := worker.Stop(); err != nil {
		t.Fatal(err)
	}
	text := workerName(worker) + " does not respond: connection refused"
	wantDistributeError(t, address, text)
	eventually(t, "Check names the worker", func() bool {
		err := s.Check(t.Context())
		return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), text)
	})
	other := openStore(t, address)
	if err := other.nodes.err(); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("a store that has just been opened reports %v, want %q", err, text)
	}
	create(t, other, record(1)) // plants is a local table of the coordinator
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Check returns nil", func() bool { return s.Check(t.Context()) == nil })
	distributeTo(t, address, Distribution{})
}

func TestCountNodes(t *testing.T) {
	nodes := []node{
		{host: "a", settings: safe}, {host: "b", settings: safe}, {host: "c", reason: "connection refused"},
		{host: "d", settings: settings{"off", "on", "on", "UTF8"}},
	}
	m := new(nodeMonitor)
	for _, step := range []struct {
		nodes []node
		err   error
		want  map[string]int64
	}{
		{nodes, nil, map[string]int64{"ok": 2, "down": 1, "unsafe": 1, "unknown": 0}},
		{nil, errors.New("the coordinator is down"), map[string]int64{"ok": 0, "down": 0, "unsafe": 0, "unknown": 4}},
		{nodes[:2], nil, map[string]int64{"ok": 2, "down": 0, "unsafe": 0, "unknown": 0}},
	} {
		if m.count(step.nodes, step.err); !maps.Equal(m.states(), step.want) {
			t.Errorf("states() = %v, want %v", m.states(), step.want)
		}
	}
}
