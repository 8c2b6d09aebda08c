//go:build linux

package durability

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver that reads the file

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

// moment is when a service is cut off.
type moment string

const (
	whileServing       moment = "serving"
	whileStarting      moment = "starting" // or recovering, or creating the database
	whileStopping      moment = "stopping" // after SIGTERM
	whileCheckpointing moment = "checkpointing"
	withDatabase       moment = "with database" // PostgreSQL is killed too, before or after
)

// trial is one database whose service is cut off repeatedly under load, and the ledger of the responses that its
// clients received. A separate process writes the ledger and compares it with the database.
type trial struct {
	t       *testing.T
	db      string // the value of --db
	ledger  string // the path of the ledger, on another file system than the database
	command func() *exec.Cmd
	cut     func(s *testkit.Server) // ends the service so that it can be started again
	server  *pgtest.Server          // of the database, for withDatabase

	total totals
}

// totals sums up the reports of the ledger.
type totals struct {
	Cuts                            int
	At                              map[moment]int
	Intents, Acks, Refused, Unknown int
	Stored, Absent                  int
	Lost                            int
	Violations                      []string
}

func (t *totals) add(o totals) {
	t.Cuts += o.Cuts
	t.Intents += o.Intents
	t.Acks += o.Acks
	t.Refused += o.Refused
	t.Unknown += o.Unknown
	t.Stored += o.Stored
	t.Absent += o.Absent
	t.Lost += o.Lost
	t.Violations = append(t.Violations, o.Violations...)
	if t.At == nil {
		t.At = map[moment]int{}
	}
	for at, n := range o.At {
		t.At[at] += n
	}
}

func (t totals) String() string {
	return fmt.Sprintf("%d cuts %v: %d intents, %d acknowledged, %d refused, %d unknown (%d stored, %d absent), "+
		"%d lost, %d violations",
		t.Cuts, t.At, t.Intents, t.Acks, t.Refused, t.Unknown, t.Stored, t.Absent, t.Lost, len(t.Violations))
}

// newTrial is a trial of the product on a database, with SIGKILL as the cut.
func newTrial(t *testing.T, db, ledger string) *trial {
	return &trial{
		t: t, db: db, ledger: ledger,
		command: func() *exec.Cmd {
			cmd := testkit.Serve(db, "--ops-listen", "off", "--access-log", "off")
			cmd.Env = append(os.Environ(), "PLANTSTORE_FIXED_TOKEN="+testkit.FixedToken)
			return cmd
		},
		cut: (*testkit.Server).Kill,
	}
}

func killSQLite(t *testing.T) *trial {
	return newTrial(t, filepath.Join(t.TempDir(), "plants.db"), filepath.Join(otherFileSystem(t), "ledger"))
}

func killPostgreSQL(t *testing.T) *trial {
	server := pgtest.Start(t, nil)
	c := newTrial(t, server.Database(t), filepath.Join(otherFileSystem(t), "ledger"))
	c.server = server
	return c
}

// killCitus is a trial on the cluster that the tests share, so not with withDatabase.
func killCitus(t *testing.T) *trial {
	cluster := pgtest.SharedCluster(t)
	c := newTrial(t, testkit.Distributed(t, cluster, "id"), filepath.Join(otherFileSystem(t), "ledger"))
	c.server = cluster.Server
	return c
}

// cutPowerSQLite is a trial whose cuts lose everything that was not synced.
func cutPowerSQLite(t *testing.T) *trial {
	disk := testkit.NewVolume(t, 1<<30)
	c := newTrial(t, disk.Path("plants.db"), filepath.Join(t.TempDir(), "ledger"))
	c.cut = func(s *testkit.Server) {
		s.Freeze()
		disk.CutPower()
		s.Kill()
		disk.Unmount()
		disk.Mount()
	}
	return c
}

// otherFileSystem is a folder on another file system than temporary folders, if there is one.
func otherFileSystem(t *testing.T) string {
	folder, err := os.MkdirTemp("/dev/shm", "plantstore-ledger-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// run cuts the service off at each of the moments, starts it again and verifies the ledger. It returns at the first
// violation.
func (c *trial) run(moments ...moment) {
	c.t.Helper()
	var s *testkit.Server
	for _, at := range moments {
		if at == whileStarting {
			if s != nil {
				s.Kill()
			}
			s = testkit.Launch(c.t, c.command())
			time.Sleep(rand.N(40 * time.Millisecond)) // The moment of the start is random.
			c.cut(s)
		} else {
			if s == nil {
				s = c.start()
			}
			c.load(s, at)
		}
		s = c.start()
		found := c.verify(s.URL)
		found.Cuts, found.At = 1, map[moment]int{at: 1}
		c.total.add(found)
		if len(found.Violations) > 0 {
			break
		}
	}
	s.Kill()
}

func (c *trial) start() *testkit.Server {
	c.t.Helper()
	s := testkit.Launch(c.t, c.command())
	s.WaitServing()
	return s
}

// load creates plants and cuts the service off.
func (c *trial) load(s *testkit.Server, at moment) {
	c.t.Helper()
	load := c.tool("drive", "--url", s.URL)
	var errs bytes.Buffer
	load.Stderr = &errs
	if err := load.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := sync.OnceValue(load.Wait)
	c.t.Cleanup(func() {
		load.Process.Kill()
		ended()
	})
	c.waitLedger(20_000 + rand.Int64N(400_000))
	switch at {
	case whileStopping:
		s.Signal(syscall.SIGTERM)
		time.Sleep(rand.N(10 * time.Millisecond)) // The moment of the stop is random.
	case whileCheckpointing:
		c.waitCheckpoint()
	case withDatabase:
		both := rand.IntN(2) == 0
		testkit.Must(c.t, c.server.Kill9)()
		if both {
			s.Kill()
		}
		testkit.Must(c.t, c.server.Start)()
		if !both {
			c.waitLedger(20_000) // The service continues.
		}
	}
	c.cut(s)
	if err := ended(); err != nil {
		c.t.Fatalf("ledger drive: %v\n%s", err, errs.String())
	}
}

// waitLedger waits until the ledger has grown by so many bytes.
func (c *trial) waitLedger(more int64) {
	c.t.Helper()
	size := func() int64 {
		info, err := os.Stat(c.ledger)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before := size()
	testkit.WaitFor(c.t, fmt.Sprintf("the ledger to grow by %d bytes", more), func() bool { return size() >= before+more })
}

// waitCheckpoint waits until the service writes to the database file itself, which only a checkpoint does.
func (c *trial) waitCheckpoint() {
	c.t.Helper()
	modified := func() time.Time {
		info, err := os.Stat(c.db)
		if err != nil {
			c.t.Fatal(err)
		}
		return info.ModTime()
	}
	before := modified()
	for start := time.Now(); modified().Equal(before); time.Sleep(100 * time.Microsecond) {
		if time.Since(start) > testkit.Deadline {
			c.t.Fatal("no checkpoint")
		}
	}
}

// verify compares the ledger with what the service returns, and checks the integrity of a SQLite file.
func (c *trial) verify(url string) (found totals) {
	c.t.Helper()
	cmd := c.tool("verify", "--url", url)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if json.Unmarshal(out, &found) != nil {
		c.t.Fatalf("ledger verify: %v\n%s%s", err, out, errs.String())
	}
	if c.server == nil {
		if err := integrity(c.db); err != nil {
			found.Violations = append(found.Violations, err.Error())
		}
	}
	return found
}

// integrity runs SQLite's own check on a file that may be in use.
func integrity(path string) error {
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=query_only(1)")
	if err != nil {
		return err
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil {
		return fmt.Errorf("integrity_check: %w", err)
	}
	if verdict != "ok" {
		return fmt.Errorf("integrity_check: %s", verdict)
	}
	return nil
}

var ledgerBinary = sync.OnceValues(func() (string, error) {
	return testkit.BuildCommand("ledger", "plantstore/internal/testkit/ledger")
})

func (c *trial) tool(command string, args ...string) *exec.Cmd {
	c.t.Helper()
	path, err := ledgerBinary()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{command, "--ledger", c.ledger}, args...)...)
	cmd.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+testkit.FixedToken)
	return cmd
}

// wantNoViolation fails the test for each violation, and if too few plants were created to detect any.
func (c *trial) wantNoViolation() {
	c.t.Helper()
	c.t.Log(c.total)
	for _, violation := range c.total.Violations[:min(10, len(c.total.Violations))] {
		c.t.Error(violation)
	}
	if c.total.Acks < 30 || c.total.Refused < 3 {
		c.t.Errorf("%d acknowledged and %d refused, want at least 30 and 3", c.total.Acks, c.total.Refused)
	}
}
