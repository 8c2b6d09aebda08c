//go:build linux

package durability

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// After a failed sync nothing is acknowledged, and nothing is synced again: the kernel may have dropped the data of
// the first sync, and a second one would report success.
func TestSyncFails(t *testing.T) {
	t.Parallel()
	stop, kill := func(s *testkit.Server) { s.Stop() }, (*testkit.Server).Kill
	for _, test := range []struct {
		what     string
		file     string // the suffix of the file whose sync fails
		nameSize int
		before   int64 // plants that are created first
		number   int   // the response to the create whose sync fails
		reason   string
		end      func(*testkit.Server)
	}{
		{"of the start of the WAL", "-wal", 10, 0, 50302, "a commit failed (the disk failed to sync", stop},
		{"of a commit", "-wal", 10, 3, 50302, "a commit failed (the disk failed to sync", stop},
		{"of a commit, then a crash", "-wal", 10, 3, 50302, "a commit failed (the disk failed to sync", kill},
		{"of a checkpoint", "", 60_000, 20, 200, "a checkpoint failed (the disk failed to sync", stop},
		{"of a large create", "-wal", 12 << 20, 0, 50303, "a write failed (the disk failed to sync", stop},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			db := filepath.Join(t.TempDir(), "plants.db")
			testkit.StartFixed(t, db).Stop() // It leaves a database without a log.
			s := testkit.StartFixed(t, db, "--max-body", "16000000")
			r := newRecord(test.nameSize)
			id := int64(1)
			for ; id <= test.before; id++ {
				r.create(s, id)
			}
			fault := inject(t, s, "fdatasync,fsync:error=EIO:when=1", "-P", db+test.file)
			got := r.create(s, id)
			for ; got == 200 && id < test.before+60 && isReady(t, s); id++ {
				got = r.create(s, id)
			}
			if got != test.number && (test.number != 200 || got != 50303) { // 50303: the checkpoint had failed just before
				t.Errorf("the create whose sync fails: %d, want %d", got, test.number)
			}
			testkit.WaitFor(t, "the writer to stop", func() bool { return !isReady(t, s) })
			for n := range int64(10) {
				r.want(t, s, 10_000+n, 50303)
				wantNotReady(t, s, test.reason)
				time.Sleep(20 * time.Millisecond) // so that the service could try to recover
			}
			if test.before > 0 {
				wantRead(t, s, 1)
			}
			test.end(s)
			fault.stop()
			if calls, injected := fault.calls(t); len(calls) != 1 || injected != 1 {
				t.Errorf("syncs, want one that failed:\n%s", strings.Join(calls, "\n"))
			}
			s = testkit.StartFixed(t, db, "--max-body", "16000000")
			r.check(t, s, db)
			r.want(t, s, id, 200)
			r.check(t, s, db)
		})
	}
}

func isReady(t *testing.T, s *testkit.Server) bool {
	t.Helper()
	status, _ := s.Health(t, "/readyz")
	return status == 200
}

// A disk can fail at the first sync of a start, at the second, and so on. The start fails with one message, and the
// next start on a working disk succeeds.
func TestSyncFailsAtStart(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	folder := t.TempDir()
	const most = 30 // syncs in a start
	for n := 1; n <= most; n++ {
		db := filepath.Join(folder, fmt.Sprint(n, ".db"))
		if startFails(t, db, fmt.Sprintf("when=%d+", n)) {
			continue
		}
		if n < 4 {
			t.Errorf("%d syncs in a start, want at least 3", n-1)
		}
		return
	}
	t.Errorf("no start without a fault after %d syncs", most)
}

// The directory entry of a new WAL must be durable, or a power cut removes the WAL with all commits.
func TestSyncOfFolderFails(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "plants.db")
	testkit.StartFixed(t, db).Stop() // It leaves a database without a WAL.
	if !startFails(t, db, "when=1+", "-P", filepath.Dir(db)) {
		t.Error("no sync of the folder in a start")
	}
}

// startFails starts the service, whose syncs fail as strace is told. If one did, it checks that the start has failed,
// and that the next one succeeds.
func startFails(t *testing.T, db, when string, args ...string) bool {
	t.Helper()
	log := db + ".strace"
	args = append([]string{"-D", "-f", "-o", log, "-e", "signal=none", "-e", "trace=fdatasync,fsync",
		"-e", "inject=fdatasync,fsync:error=EIO:" + when}, args...)
	s := testkit.Launch(t, exec.Command("strace", append(args, testkit.Serve(db).Args...)...))
	testkit.WaitFor(t, "the server to serve or to end", func() bool {
		return strings.Contains(s.Stderr.String(), `"msg":"serving"`) || !s.Running()
	})
	printed := s.Stderr.String()
	_, injected := tracedCalls(t, log)
	if s.Running() {
		s.Kill()
		if injected > 0 {
			t.Errorf("the service serves after a sync of its start failed:\n%s", printed)
		}
		return false
	}
	if injected == 0 {
		testkit.Unavailable(t, "strace cannot start a process: %s", printed)
	}
	if code := s.Cmd.ProcessState.ExitCode(); code != 1 ||
		!strings.Contains(printed, "failed to sync") && !strings.Contains(printed, "input/output error") {
		t.Errorf("a sync fails %s: exit code %d\n%s", when, code, printed)
	}
	s = testkit.StartFixed(t, db)
	r := newRecord(10)
	r.want(t, s, 1, 200)
	s.Kill()
	r.check(t, testkit.StartFixed(t, db), db)
	return true
}

// A create that was written but not synced when the process died exists after the next start. Before a repetition
// is acknowledged it must be synced, so that a power cut does not lose it.
func TestFoundInTheLog(t *testing.T) {
	t.Parallel()
	v := testkit.NewVolume(t, 16<<20)
	db := v.Path("plants.db")
	s := testkit.StartFixed(t, db)
	r := newRecord(10)
	r.want(t, s, 1, 200)
	fault := inject(t, s, "fdatasync,fsync:delay_enter=20000000", "-P", db+"-wal")
	response := make(chan int)
	go func() { response <- r.create(s, 2) }()
	testkit.WaitFor(t, "the sync of a create", func() bool {
		calls, _ := fault.calls(t)
		return len(calls) > 0 // Everything is written, and the sync is delayed.
	})
	s.Cmd.Process.Kill()
	fault.stop()
	<-s.Ended
	if got := <-response; got != ledger.None {
		t.Fatalf("a create returned %d before its sync", got)
	}
	s = testkit.StartFixed(t, db)
	wantRead(t, s, 2) // Otherwise the test shows nothing.
	r.want(t, s, 2, 200)
	v.CutPower()
	s.Kill()
	v.Unmount()
	v.Mount()
	r.check(t, testkit.StartFixed(t, db), db)
}

// On a thin volume without free blocks, a sync really fails: the kernel still returns the data from its cache and
// marks it clean, but the disk does not have it. What is acknowledged after a restart must be on the disk.
func TestSyncFailsAndTheServiceIsStartedAgain(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "plantstore-test", folder)
	if out, err := mount.CombinedOutput(); err != nil {
		testkit.Unavailable(t, "a tmpfs cannot be mounted: %v %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", "--lazy", folder).Run() })
	v := thinVolume(t, folder)
	db := v.Path("plants.db")
	s := testkit.StartFixed(t, db)
	r := newRecord(30_000)
	for id := range int64(3) {
		r.want(t, s, id, 200)
	}
	v.Run("sync", "--file-system", v.Folder)
	v.Run("fstrim", v.Folder) // It returns the blocks that no file uses.

	filler, err := os.Create(filepath.Join(folder, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 4096); err == nil; {
		_, err = filler.Write(buffer)
	}
	filler.Close()
	last := int64(3)
	for ; r.create(s, last) == 200; last++ { // into blocks that the file already has
		if last == 200 {
			t.Fatal("no create fails although the volume has no free blocks")
		}
	}
	if r.Responses()[50302] != 1 {
		t.Fatalf("responses %v, want one 50302", r.Responses())
	}
	waitNotReady(t, s, "start")
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}

	s.Stop()
	s = testkit.StartFixed(t, db)
	for id := last; id < last+5; id++ { // The first of them is a repetition.
		r.want(t, s, id, 200)
	}
	s.Kill()
	v.Unmount()
	v.Mount()
	r.check(t, testkit.StartFixed(t, db), db)
}

// thinVolume is a volume whose image is in a folder and takes up blocks there only for the data in it.
func thinVolume(t *testing.T, folder string) *testkit.Volume {
	t.Helper()
	v := testkit.NewVolumeIn(t, folder, 24<<20)
	v.Unmount()
	v.Run("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", v.Image)
	v.Run("cp", "--sparse=never", v.Image, v.Image+".full")
	v.Run("mv", v.Image+".full", v.Image)
	v.Mount()
	// The loop device reports success for a write of which it completed only a part, so each writes one block.
	if err := os.WriteFile("/sys/block/"+v.Device()+"/queue/max_sectors_kb", []byte("4"), 0); err != nil {
		testkit.Unavailable(t, "the device cannot be limited to single blocks: %v", err)
	}
	return v
}
