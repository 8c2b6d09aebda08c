package transfer

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

var withLitestream = flag.Bool("litestream", false, "build Litestream and follow a database with it")

const litestreamVersion = "v0.5.17"

// Litestream follows the database of a service under load. After a kill of the service, and after a kill of both, what
// it restores has every plant that was confirmed before the last synchronization.
func TestLitestream(t *testing.T) {
	if !*withLitestream {
		t.Skip("make litestream runs it")
	}
	program := testkit.GoTool(t, "github.com/benbjohnson/litestream/cmd/litestream", litestreamVersion)
	db, replica := testkit.Engines[0].Database(t), "file://"+filepath.Join(t.TempDir(), "replica")
	restore := func(to string) error {
		out, err := exec.Command(program, "restore", "-o", to, replica).CombinedOutput()
		if err != nil {
			t.Logf("restore: %v %.300s", err, out)
		}
		return err
	}
	var s *testkit.Server
	load := &creators{}
	for _, both := range []bool{false, true} {
		if s == nil {
			s = testkit.Start(t, db)
		} else {
			s = testkit.StartAgain(t, s, db)
		}
		follow := testkit.Launch(t, exec.Command(program, "replicate", db, replica))
		load = continueCreators(t, s, load)
		time.Sleep(15 * time.Second) // several checkpoints of either program
		wal, err := os.Stat(db + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		confirmed := load.confirmedNow()
		restored := filepath.Join(t.TempDir(), "restored.db")
		if both {
			testkit.WaitFor(t, "Litestream to copy what was confirmed", func() bool {
				os.Remove(restored)
				return restore(restored) == nil && load.has(t, restored, confirmed)
			})
			os.Remove(restored)
		}
		load.quiet.Store(true)
		s.Kill()
		load.end()
		if both {
			follow.Kill()
		} else {
			confirmed = load.confirmedNow()
			follow.Signal(syscall.SIGTERM) // it copies the rest
			follow.WaitExit()
		}
		if err := restore(restored); err != nil {
			t.Fatal(err, follow.Stderr, follow.Stdout)
		}
		load.wantPlants(t, restored, confirmed)
		if out, errs, code := testkit.Run(t, nil, "doctor", "--integrity", "--db", restored); code != 0 &&
			!strings.Contains(errs, "problems found: 1") || strings.Contains(out, "problem  integrity") {
			t.Errorf("doctor: exit %d, %s%s", code, out, errs)
		}
		again := testkit.StartAgain(t, s, restored)
		again.Kill()
		t.Logf("%d plants confirmed, WAL of %d MiB", load.total(), wal.Size()>>20)
	}
}
