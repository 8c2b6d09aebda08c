package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit/proxy"
)

// readNodes returns the state of the nodes of the cluster at a URL, one line each.
func readNodes(t *testing.T, address string) string {
	t.Helper()
	conn := newTestNodeConn(t, address)
	nodes, err := conn.nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return describe(nodes)
}

func newTestNodeConn(t *testing.T, address string) *nodeConn {
	t.Helper()
	config, err := parseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	conn := newNodeConn(config.ConnConfig)
	t.Cleanup(conn.close)
	return conn
}

func describe(nodes []node) string {
	var lines []string
	for _, n := range nodes {
		s := n.settings
		lines = append(lines, strings.Join([]string{n.name(), n.reason, s.Fsync, s.FullPageWrites, s.SynchronousCommit,
			s.Encoding}, "|"))
	}
	return strings.Join(lines, "\n")
}

func workerName(w *pgtest.Server) string { return fmt.Sprintf("worker 127.0.0.1:%d", w.Port) }

// Every user can read the settings of all nodes, on every node.
func TestNodes(t *testing.T) {
	t.Parallel()
	if got := readNodes(t, pgtest.Database(t)); got != "" {
		t.Errorf("nodes of a plain server = %s", got)
	}
	c := pgtest.SharedCluster(t)
	address := c.Database(t)
	user := "asker_" + databaseOf(t, address)
	c.Query(t, databaseOf(t, address), fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", user, pgtest.Password))
	lines := []string{fmt.Sprintf("coordinator 127.0.0.1:%d||on|on|on|UTF8", c.Port)}
	ports := []int{c.Workers[0].Port, c.Workers[1].Port}
	for _, port := range []int{min(ports[0], ports[1]), max(ports[0], ports[1])} {
		lines = append(lines, fmt.Sprintf("worker 127.0.0.1:%d||on|on|on|UTF8", port))
	}
	for _, address := range []string{address, c.Worker(0, address), c.Worker(1, address)} {
		as := editURL(t, address, func(u *url.URL, _ url.Values) { u.User = url.UserPassword(user, pgtest.Password) })
		for _, address := range []string{address, as} {
			got := strings.Split(readNodes(t, address), "\n")
			if len(got) != 3 || got[0] != lines[0] || !contains(got, lines[1]) || !contains(got, lines[2]) {
				t.Errorf("nodes at %s = %q, want %q", address, got, lines)
			}
		}
	}
}

func contains(lines []string, want string) bool {
	return strings.Contains("\n"+strings.Join(lines, "\n")+"\n", "\n"+want+"\n")
}

func TestUnsafeWorkers(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 2, nil)
	address := c.Database(t)
	distributeBy(t, address, "id")
	worker := c.Workers[1]
	s := openStore(t, address)
	for i, test := range []struct{ setting, value, risk string }{
		{"fsync", "off", "a power loss can destroy the database"},
		{"full_page_writes", "off", "a power loss can destroy pages of the database"},
		{"synchronous_commit", "local", "plants can be lost after they were confirmed"},
	} {
		create(t, s, record(10*i))
		reload(t, worker, test.setting, test.value)
		text := fmt.Sprintf("%s runs with %s=%s, so %s; set it to on or, if that loss is acceptable, "+
			"start with --unsafe-durability", workerName(worker), test.setting, test.value, test.risk)
		for _, address := range []string{address, c.Worker(0, address)} {
			if err := wantOpenError(t, address, text); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("Open() = %v, want %v", err, store.ErrUnavailable)
			}
		}
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

// A worker that is down or hangs is named, and does not prevent a start.
func TestWorkersThatDoNotRespond(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 2, nil)
	address := c.Database(t)
	s := openStore(t, address)
	worker := c.Workers[0]
	conn := newTestNodeConn(t, address)
	if _, err := conn.nodes(t.Context()); err != nil { // from now on, the connection is one that was used
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, reason string
		fail, repair func() error
	}{
		{"down", "connection refused", worker.Stop, worker.Start},
		{"killed", "connection refused", worker.Kill9, worker.Start},
		{"hangs", "could not establish connection after 1000 ms", worker.Suspend, worker.Resume},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.fail(); err != nil {
				t.Fatal(err)
			}
			repair := sync.OnceFunc(func() {
				if err := test.repair(); err != nil {
					t.Error(err)
				}
			})
			defer repair()
			text := workerName(worker) + " does not respond: " + test.reason
			nodes, err := conn.nodes(t.Context())
			if err == nil {
				err = nodesError(nodes, Options{})
			}
			if want := store.ErrUnavailable.Error() + ": " + text; err == nil || err.Error() != want {
				t.Errorf("nodes = %v, want %s", err, want)
			}
			eventually(t, "Check names the worker", func() bool {
				err := s.Check(t.Context())
				return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), text)
			})
			other := openStore(t, address)
			if err := other.nodes.err(); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("a store that has just been opened reports %v, want %q", err, text)
			}
			create(t, other, record(len(test.name))) // plants is a local table of the coordinator
			other.Close()
			repair()
			eventually(t, "Check returns nil", func() bool { return s.Check(t.Context()) == nil })
		})
	}
}

// A worker can also hang after it has accepted a connection. Then the nodes are queried one after the other.
func TestWorkerHangsAfterConnect(t *testing.T) {
	t.Parallel()
	c := pgtest.SharedCluster(t)
	address := c.Database(t)
	p := proxy.New(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Workers[0].Port)))
	_, port, _ := net.SplitHostPort(p.Address)
	c.Query(t, databaseOf(t, address), fmt.Sprintf(
		"SELECT citus_update_node(nodeid, nodename, %s) FROM pg_dist_node WHERE nodeport = %d", port, c.Workers[0].Port))
	p.Set(func(chunk *proxy.Chunk) ([]byte, bool) {
		return chunk.Data, chunk.Direction != proxy.Requests || !bytes.Contains(chunk.Data, []byte("full_page_writes")) ||
			hangs(chunk)
	})
	conn := newTestNodeConn(t, address)
	eventually(t, "one worker does not respond", func() bool { // on a slow machine, others may not respond either
		nodes, err := conn.nodes(t.Context())
		got := describe(nodes)
		t.Log(got, err)
		return err == nil && strings.Contains(got, "worker "+p.Address+"|no response within 2s||||") &&
			strings.Contains(got, workerName(c.Workers[1])+"||on|on|on|UTF8")
	})
}

// hangs returns when the fault is removed.
func hangs(chunk *proxy.Chunk) bool {
	select {
	case <-chunk.Removed:
	case <-time.After(time.Minute):
	}
	return true
}

func TestShortReason(t *testing.T) {
	const after = "connection to the remote node a@b:1 failed with the following error: "
	for warning, want := range map[string]string{
		after + "Connection refused\n\tIs it?":         "connection refused",
		after + `FATAL:  database "d" does not exist`:  `FATAL:  database "d" does not exist`,
		"could not establish connection after 1000 ms": "could not establish connection after 1000 ms",
		"": "",
	} {
		if got := shortReason(warning); got != want {
			t.Errorf("shortReason(%q) = %q, want %q", warning, got, want)
		}
	}
}
