//go:build linux

package durability

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
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

// trial is one database whose service is cut off repeatedly under load, and the ledger of its clients.
type trial struct {
	*ledger.Ledger
	t       *testing.T
	db      string // the value of --db
	command func() *exec.Cmd
	cut     func(s *testkit.Server) // ends the service so that it can be started again
	server  *pgtest.Server          // of the database, for withDatabase

	cuts  int
	total ledger.Report
}

// newTrial is a trial of the product on a database, with SIGKILL as the cut.
func newTrial(t *testing.T, db string) *trial {
	return &trial{
		Ledger: ledger.New(), t: t, db: db,
		command: func() *exec.Cmd {
			cmd := testkit.Serve(db, "--ops-listen", "off", "--access-log", "off")
			cmd.Env = append(os.Environ(), "PLANTSTORE_FIXED_TOKEN="+testkit.FixedToken)
			return cmd
		},
		cut: (*testkit.Server).Kill,
	}
}

func killSQLite(t *testing.T) *trial { return newTrial(t, filepath.Join(t.TempDir(), "plants.db")) }

func killPostgreSQL(t *testing.T) *trial {
	server := pgtest.Start(t, nil)
	c := newTrial(t, server.Database(t))
	c.server = server
	return c
}

// cutPowerSQLite is a trial whose cuts lose everything that was not synced.
func cutPowerSQLite(t *testing.T) *trial {
	disk := testkit.NewVolume(t, 1<<30)
	c := newTrial(t, disk.Path("plants.db"))
	c.cut = func(s *testkit.Server) {
		s.Freeze()
		disk.CutPower()
		s.Kill()
		disk.Unmount()
		disk.Mount()
	}
	return c
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
		c.cuts++
		if found := c.verify(s); len(found.Violations) > 0 {
			break
		}
	}
	s.Kill()
}

func (c *trial) start() *testkit.Server {
	c.t.Helper()
	s := testkit.Launch(c.t, c.command())
	s.WaitServing()
	s.Token = testkit.FixedToken
	return s
}

// load creates plants and cuts the service off.
func (c *trial) load(s *testkit.Server, at moment) {
	c.t.Helper()
	stop := c.Start(c.t, ledger.Options{Edits: true}, s.Target())
	c.Wait(c.t, 50+rand.IntN(500))
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
			c.Wait(c.t, 50) // The service continues.
		}
	}
	c.cut(s)
	stop()
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
func (c *trial) verify(s *testkit.Server) ledger.Report {
	c.t.Helper()
	found, err := c.Verify(s.Target())
	if err != nil {
		c.t.Fatal(err)
	}
	if c.server == nil {
		if err := integrity(c.db); err != nil {
			found.Violations = append(found.Violations, err.Error())
		}
	}
	c.total.Add(found)
	return found
}

// integrity runs SQLite's own check on a file that may be in use.
func integrity(path string) error {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetBusyTimeout(5 * time.Second)
	check, err := conn.Prepare("PRAGMA integrity_check(1)")
	if err != nil {
		return err
	}
	if verdict, err := sqlitex.ResultText(check); err != nil || verdict != "ok" {
		return fmt.Errorf("integrity_check: %s %v", verdict, err)
	}
	return nil
}

// wantNoViolation fails the test for each violation, and if too few plants were created to detect any.
func (c *trial) wantNoViolation() {
	c.t.Helper()
	c.t.Logf("%d cuts: %v", c.cuts, c.total)
	for _, violation := range c.total.Violations[:min(10, len(c.total.Violations))] {
		c.t.Error(violation)
	}
	if c.total.Acked < 30 || c.total.Refused < 3 {
		c.t.Errorf("%d acknowledged and %d refused, want at least 30 and 3", c.total.Acked, c.total.Refused)
	}
}
