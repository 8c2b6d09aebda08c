package citus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit/proxy"
)

var safe = postgres.ServerSettings{Fsync: "on", FullPageWrites: "on", SynchronousCommit: "on", Encoding: "UTF8"}

func workerName(w *pgtest.Server) string { return fmt.Sprintf("worker 127.0.0.1:%d", w.Port) }

// A worker can hang after it has accepted a connection. Then only this one is named.
func TestWorkerHangsAfterConnect(t *testing.T) {
	t.Parallel()
	c := pgtest.SharedCluster(t)
	address := c.Database(t)
	p := proxy.New(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Workers[0].Port)))
	_, port, _ := net.SplitHostPort(p.Address)
	c.Query(t, pgtest.Name(address), fmt.Sprintf(
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
	pgtest.Eventually(t, "one worker does not respond", func() bool { // on a slow machine, others may not respond either
		lines := wantFindings(t, address)
		want := "durability problem: worker " + p.Address + " does not respond: no response within 2s"
		return strings.Contains(lines, want) && strings.Count(lines, "durability ok: ") == 2
	})
}

// The faults of workers, one after the other on one cluster.
func TestFaultsOfWorkers(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 2, nil)
	t.Run("unsafe settings", func(t *testing.T) { testUnsafeWorkers(t, c, c.Database(t)) })
	t.Run("no standby", func(t *testing.T) { testWorkersWithoutStandby(t, c, c.Database(t)) })
	t.Run("diagnosis", func(t *testing.T) { testDiagnosisOfCluster(t, c, c.Database(t)) })
}

// A worker that can lose what it confirms is refused, also while the store is open.
func testUnsafeWorkers(t *testing.T, c *pgtest.Cluster, address string) {
	distributeBy(t, address, "id")
	worker := c.Workers[1]
	s := openStorage(t, address, patient)
	for i, test := range []struct{ setting, value, risk string }{
		{"fsync", "off", "a power loss can destroy the database"},
		{"synchronous_commit", "local", "plants can be lost after they were confirmed"},
	} {
		create(t, s, 10*i)
		worker.Reload(t, test.setting, test.value)
		text := fmt.Sprintf("%s runs with %s=%s, so %s; set it to on or, if that loss is acceptable, "+
			"start with --unsafe-durability", workerName(worker), test.setting, test.value, test.risk)
		wantOpenError(t, address, text)
		wantOpenError(t, c.Worker(0, address), text)
		accepted, err := Open(t.Context(), address, postgres.Options{UnsafeDurability: true})
		if err != nil {
			t.Fatalf("Open() with UnsafeDurability = %v", err)
		}
		create(t, accepted, 10*i+1)
		accepted.Close()
		refused := func(err error) bool {
			return errors.Is(err, storage.ErrUnavailable) && strings.Contains(err.Error(), text)
		}
		// On a slow machine, the result of an earlier check counts for a moment.
		pgtest.Eventually(t, "a check fails because of "+test.setting, func() bool { return refused(s.Check(t.Context())) })
		if _, err = s.CreateBatch(t.Context(), []plant.Record{record(10*i + 2)}); !refused(err) {
			t.Errorf("CreateBatch() = %v, want %q", err, text)
		}
		worker.Reload(t, test.setting, "")
		pgtest.Eventually(t, "a check with the setting reset", func() bool { return s.Check(t.Context()) == nil })
		create(t, s, 10*i+2)
	}
}

// A plant that is on the disk of a worker, but not on its synchronous standby, is not confirmed: neither to the client
// that created it, nor to one that repeats the create.
func testWorkersWithoutStandby(t *testing.T, c *pgtest.Cluster, address string) {
	distributeBy(t, address, "id")
	s := openStorage(t, address, postgres.Timeouts{Write: 15 * time.Second, Attempt: 10 * time.Second, Read: patient.Read})
	create(t, s, 1, 2, 3, 4) // opens the connections to the workers
	for _, w := range c.Workers {
		w.Reload(t, "synchronous_standby_names", "nobody")
	}
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
				if !errors.Is(err, storage.ErrUnknown) {
					t.Errorf("%s = %v, want %v", attempt, err, storage.ErrUnknown)
				}
				end = true
			case <-time.After(20 * time.Millisecond):
				for _, w := range c.Workers {
					w.Query(t, pgtest.Name(address), cancel)
				}
			}
		}
	}
	for _, w := range c.Workers {
		w.Reload(t, "synchronous_standby_names", "")
	}
	outcomes, err := openStorage(t, address, patient).CreateBatch(t.Context(), []plant.Record{record(9)})
	if err != nil || outcomes[0] != plant.Same {
		t.Errorf("CreateBatch() with the standbys again = %v, %v, want %v", outcomes, err, plant.Same)
	}
}

func testDiagnosisOfCluster(t *testing.T, c *pgtest.Cluster, address string) {
	create(t, openStorage(t, address, patient), 1, 2, 3)
	wantFindings(t, address, "distribution warning: all plants are on the coordinator; ")
	distributeTo(t, address, Distribution{Shards: 4})
	for _, address := range []string{address, c.Worker(0, address)} {
		pgtest.Eventually(t, "every node responds", func() bool {
			lines := wantFindings(t, address, "distribution ok: by id, 4 shards", "tables ok: ")
			return strings.Count(lines, "durability ok: ") == 3 && !strings.Contains(lines, "problem")
		})
	}
	worker := c.Workers[1]
	worker.Exec(t, "ALTER DATABASE "+pgtest.Name(address)+" SET synchronous_commit = off")
	wantFindings(t, address, "durability problem: "+workerName(worker)+" runs with synchronous_commit=off")
	if err := worker.Suspend(); err != nil {
		t.Fatal(err)
	}
	defer worker.Resume()
	wantFindings(t, address, "durability problem: "+workerName(worker)+" does not respond: ",
		"durability ok: coordinator ", "schema ok: ")
}

func TestHealth(t *testing.T) {
	nodes := []node{
		{host: "a", settings: safe}, {host: "b", settings: safe}, {host: "c", reason: "Connection refused"},
		{host: "d", settings: postgres.ServerSettings{Fsync: "off", Encoding: "UTF8"}},
	}
	down := errors.New("the coordinator is down")
	for _, step := range []struct {
		health *health
		err    string
		unsafe bool
		counts string
	}{
		{healthOf(nodes, postgres.Options{}),
			"worker c:0 does not respond: Connection refused; worker d:0 runs with fsync=off", true,
			"map[down:1 ok:2 unknown:0 unsafe:1]"},
		{healthOf(nodes, postgres.Options{}).unknown(down), "fsync=off", true, "map[down:0 ok:0 unknown:4 unsafe:0]"},
		{healthOf(nodes[:3], postgres.Options{}).unknown(down), down.Error(), false, "map[down:0 ok:0 unknown:3 unsafe:0]"},
		{healthOf(nodes[:2], postgres.Options{}), "<nil>", false, "map[down:0 ok:2 unknown:0 unsafe:0]"},
	} {
		h := step.health
		if !strings.Contains(fmt.Sprint(h.err), step.err) || h.unsafe != step.unsafe || fmt.Sprint(h.counts) != step.counts {
			t.Errorf("%+v, want %+v", h, step)
		}
	}
}
