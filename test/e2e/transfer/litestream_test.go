package transfer

import (
	"flag"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
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
	load := ledger.New()
	for _, both := range []bool{false, true} {
		if s == nil {
			s = testkit.Start(t, db)
		} else {
			s = testkit.StartAgain(t, s, db)
		}
		follow := testkit.Launch(t, exec.Command(program, "replicate", db, replica))
		stop := load.Start(t, ledger.Options{Edits: true}, s.Target())
		time.Sleep(15 * time.Second) // several checkpoints of either program
		verify := load.Mark()
		if both {
			testkit.WaitFor(t, "Litestream to copy what was confirmed", func() bool {
				part := filepath.Join(t.TempDir(), "part.db")
				if restore(part) != nil {
					return false
				}
				copied := testkit.StartAgain(t, s, part)
				defer copied.Kill()
				r, err := verify(copied.Target())
				return err == nil && len(r.Violations) == 0
			})
		}
		s.Kill()
		stop()
		if both {
			follow.Kill()
		} else {
			verify = load.Mark()
			follow.Signal(syscall.SIGTERM) // it copies the rest
			follow.WaitExit()
		}
		restored := filepath.Join(t.TempDir(), "restored.db")
		if err := restore(restored); err != nil {
			t.Fatal(err, follow.Stderr, follow.Stdout)
		}
		if out, errs, code := testkit.Run(t, nil, "doctor", "--integrity", "--db", restored); code != 0 &&
			!strings.Contains(errs, "problems found: 1") || strings.Contains(out, "problem  integrity") {
			t.Errorf("doctor: exit %d, %s%s", code, out, errs)
		}
		wantCopy(t, s, restored, verify)
		t.Logf("responses %v", load.Responses())
	}
}
