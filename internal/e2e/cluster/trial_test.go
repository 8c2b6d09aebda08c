//go:build linux

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

// trial is a cluster, the services on its nodes and the ledger of the responses that their clients received. A separate
// process writes the ledger and compares it with what is stored.
type trial struct {
	t       *testing.T
	cluster *pgtest.Cluster
	db      string // the URL of the database on the coordinator
	name    string // of the database
	by      string // the column by which plants are distributed
	serves  []*testkit.Server
	ledger  string // the path
	drive   *exec.Cmd
	ended   func() error // waits for drive

	total report
}

// report is what the ledger found since the last time.
type report struct {
	Intents, Acks, Refused, Unknown int
	Stored                          int // unknown ones that happened
	Lost                            int
	Violations                      []string
}

func (r *report) add(o report) {
	r.Intents += o.Intents
	r.Acks += o.Acks
	r.Refused += o.Refused
	r.Unknown += o.Unknown
	r.Stored += o.Stored
	r.Lost += o.Lost
	r.Violations = append(r.Violations, o.Violations...)
}

func (r report) String() string {
	return fmt.Sprintf("%d intents, %d acknowledged, %d refused, %d unknown (%d happened), %d lost, %d violations",
		r.Intents, r.Acks, r.Refused, r.Unknown, r.Stored, r.Lost, len(r.Violations))
}

// newTrial starts a cluster with two workers, and as many spare servers, and distributes a database by a column.
func newTrial(t *testing.T, by string, spare int) *trial {
	t.Helper()
	c := pgtest.StartCluster(t, 2+spare, nil)
	all := c.Workers
	c.Workers = all[:2]
	x := &trial{t: t, cluster: c, by: by, db: testkit.Distributed(t, c, by)}
	c.Workers = all // so that all are removed
	x.name = testkit.DatabaseName(t, x.db)
	x.ledger = filepath.Join(t.TempDir(), "ledger")
	return x
}

// serve starts a service on a node.
func (x *trial) serve(db string, args ...string) *testkit.Server {
	x.t.Helper()
	s := testkit.StartFixed(x.t, db, append(args, "--access-log", "off")...)
	x.serves = append(x.serves, s)
	return s
}

const clients = 16

// load starts the clients of the ledger, which create, repeat, replace and remove plants.
func (x *trial) load() {
	x.t.Helper()
	var urls []string
	for _, s := range x.serves {
		urls = append(urls, s.URL)
	}
	x.drive = x.tool("drive", "--edits", "--clients", fmt.Sprint(clients), "--url", strings.Join(urls, ","))
	x.drive.Stderr = new(bytes.Buffer)
	if err := x.drive.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.ended = sync.OnceValue(x.drive.Wait)
	x.t.Cleanup(x.stop)
	x.wait()
}

// stop ends the clients once their requests in flight have a response.
func (x *trial) stop() {
	x.drive.Process.Signal(syscall.SIGTERM)
	if err := x.ended(); err != nil {
		x.t.Errorf("ledger drive: %v\n%s", err, x.drive.Stderr)
	}
}

// wait waits until the clients have had some more plants acknowledged.
func (x *trial) wait() {
	x.t.Helper()
	const more = 50
	before := x.acknowledged()
	testkit.WaitFor(x.t, "more acknowledged plants", func() bool { return x.acknowledged() >= before+more })
}

func (x *trial) acknowledged() int {
	text, _ := os.ReadFile(x.ledger)
	return bytes.Count(text, []byte("\nACK "))
}

var errorNumber = regexp.MustCompile(`(?m)^(?:REFUSED|UNKNOWN) \d+ (503\d\d|none)$`)

// responses counts the error numbers of 503, and requests without a response, of all faults so far.
func (x *trial) responses() map[string]int {
	text, _ := os.ReadFile(x.ledger)
	counts := map[string]int{}
	for _, m := range errorNumber.FindAllSubmatch(text, -1) {
		counts[string(m[1])]++
	}
	return counts
}

// failures is the sum of responses.
func (x *trial) failures() (n int) {
	for _, count := range x.responses() {
		n += count
	}
	return n
}

// verify ends the clients and compares what is stored with the ledger.
func (x *trial) verify(what string) {
	x.t.Helper()
	x.stop()
	cmd := x.tool("verify", "--url", x.serves[0].URL)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var found report
	if json.Unmarshal(out, &found) != nil {
		x.t.Fatalf("ledger verify: %v\n%s%s", err, out, errs.String())
	}
	x.t.Logf("%s: %v; responses: %v", what, found, x.responses())
	for _, violation := range found.Violations[:min(10, len(found.Violations))] {
		x.t.Errorf("%s: %s", what, violation)
	}
	x.total.add(found)
	x.wantNothingPrepared()
}

var ledgerBinary = sync.OnceValues(func() (string, error) {
	return testkit.BuildCommand("ledger", "plantstore/internal/testkit/ledger")
})

func (x *trial) tool(command string, args ...string) *exec.Cmd {
	x.t.Helper()
	path, err := ledgerBinary()
	if err != nil {
		x.t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{command, "--ledger", x.ledger}, args...)...)
	cmd.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+testkit.FixedToken)
	return cmd
}

// wantNothingPrepared waits until no node has a prepared transaction, whose locks would block others.
func (x *trial) wantNothingPrepared() {
	x.t.Helper()
	var last string
	for deadline := time.Now().Add(testkit.Deadline); ; time.Sleep(100 * time.Millisecond) {
		last = ""
		for _, node := range x.cluster.Nodes() {
			rows := node.Query(x.t, "postgres", "SELECT gid FROM pg_prepared_xacts WHERE database = '"+x.name+"'")
			for _, row := range rows {
				last = fmt.Sprintf("%s on the node at port %d", row[0], node.Port)
			}
		}
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			x.t.Fatalf("a transaction is still prepared after %v: %s", testkit.Deadline, last)
		}
	}
}

// probe creates plants whose shards are all on one worker, with a token that is looked up in the database.
type probe struct {
	x      *trial
	worker int
	token  string
	ids    []int64
	next   int
}

// newProbes returns a probe for each of the two workers. Each uses a store of its own, which the ledger does not.
func (x *trial) newProbes() (all [2]*probe) {
	x.t.Helper()
	for w := range all {
		p := &probe{x: x, worker: w}
		for n := 0; p.token == ""; n++ {
			storeName := fmt.Sprintf("probe-%d-%d", w, n)
			if p.ids = x.idsOn(w, storeName); len(p.ids) > 0 {
				p.token = testkit.IssueToken(x.t, x.db, "--name", storeName, "--store", storeName)
			}
		}
		all[w] = p
	}
	return all
}

// idsOn returns ids of plants of a store whose shards are on a worker.
func (x *trial) idsOn(worker int, storeName string) (ids []int64) {
	x.t.Helper()
	column := "i"
	if x.by == "store" {
		column = "'" + storeName + "'::text"
	}
	rows := x.cluster.Query(x.t, x.name, fmt.Sprintf(`
		SELECT i FROM generate_series(1::bigint, 1000) AS i
		JOIN pg_dist_shard_placement ON shardid = get_shard_id_for_distribution_column('plants', %s)
		WHERE nodeport = %d ORDER BY i`, column, x.cluster.Workers[worker].Port))
	for _, row := range rows {
		var id int64
		fmt.Sscan(row[0], &id)
		ids = append(ids, id)
	}
	return ids
}

// tokenChecked is a time in which a token is looked up again.
const tokenChecked = 3 * time.Second

// workerOf returns a worker that has plants of a store.
func (x *trial) workerOf(storeName string) int {
	x.t.Helper()
	if len(x.idsOn(0, storeName)) > 0 {
		return 0
	}
	return 1
}

// want creates plants one after the other, n of which must succeed.
func (p *probe) want(s *testkit.Server, n int) {
	t := p.x.t
	t.Helper()
	to := testkit.Target{URL: s.URL, Token: p.token}
	start, failures := time.Now(), map[int]int{}
	created := 0
	for ; created < n || time.Since(start) < tokenChecked; time.Sleep(50 * time.Millisecond) {
		id := p.ids[p.next]
		a, err := to.Send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"probe"}`, id))
		switch {
		case err == nil && a.Status == 200:
			p.next++
			created++
		case err == nil && a.Status == 503:
			failures[a.Number()]++
		default:
			t.Fatalf("plant %d on worker %d: %v %d %s", id, p.worker, err, a.Status, a.Body)
		}
		if time.Since(start) > testkit.Deadline {
			t.Fatalf("%d of %d plants on worker %d were created in %v, while the other one had a fault; failures %v",
				created, n, p.worker, testkit.Deadline, failures)
		}
	}
	t.Logf("%d plants on the healthy worker took %v during the fault; failures %v", created,
		time.Since(start).Round(time.Millisecond), failures)
}

// read reads plants of the worker without pause until the returned function is called. Their responses do not matter.
func (p *probe) read(s *testkit.Server) (stop func()) {
	to := testkit.Target{URL: s.URL, Token: p.token}
	end := make(chan struct{})
	var readers sync.WaitGroup
	for range clients {
		readers.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					to.Send("GET", fmt.Sprintf("/plants/%d", p.ids[0]), "")
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(end)
		readers.Wait()
	})
}
