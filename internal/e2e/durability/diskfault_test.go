//go:build linux

package durability

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

// told is what clients sent and what they were told of it. The name of a plant follows from its id.
type told struct {
	mu      sync.Mutex
	size    int // of a name
	sent    map[int64]bool
	acked   map[int64]bool
	refused map[int64]bool // nothing was stored, the answer said
	answers map[int]int    // how often each number came; 200 for 200
	slowest time.Duration
}

func newTold(size int) *told {
	return &told{size: size, sent: map[int64]bool{}, acked: map[int64]bool{}, refused: map[int64]bool{}, answers: map[int]int{}}
}

func (l *told) name(id int64) string {
	name := fmt.Sprintf("plant %d ", id)
	return name + strings.Repeat("x", max(0, l.size-len(name)))
}

func (l *told) body(id int64) string { return fmt.Sprintf(`{"id":%d,"name":"`, id) + l.name(id) + `"}` }

// send creates a plant and notes the answer. It returns the number of the catalogue, or 200.
func (l *told) send(t *testing.T, p *testkit.Server, id int64) int {
	t.Helper()
	l.mu.Lock()
	l.sent[id] = true
	l.mu.Unlock()
	start := time.Now()
	a, err := p.Send("POST", "/plants", l.body(id))
	if err != nil {
		t.Errorf("plant %d: %v", id, err)
		return 0
	}
	took := time.Since(start)
	number := a.Number()
	if a.Status == 200 {
		number = 200
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[number]++
	l.slowest = max(l.slowest, took)
	switch number {
	case 200:
		l.acked[id] = true
		delete(l.refused, id)
	case 50301, 50303, 50304:
		if !l.acked[id] {
			l.refused[id] = true
		}
	case 50302:
	default:
		t.Errorf("plant %d: answered %d %s", id, a.Status, a.Body)
	}
	return number
}

// check holds the file to what was told: what was acknowledged is there, what was refused is not, and what
// is there is whole. The server may run.
func (l *told) check(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity_check: %q %v", verdict, err)
	}
	rows, err := db.Query("SELECT id, name FROM plants")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	there := map[int64]bool{}
	for rows.Next() {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			t.Fatal(err)
		}
		there[id] = true
		if !l.sent[id] || name != l.name(id) {
			t.Errorf("plant %d is stored and was never sent so", id)
		}
		if l.refused[id] {
			t.Errorf("plant %d was refused and is stored", id)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for id := range l.acked {
		if !there[id] {
			t.Errorf("plant %d was answered 200 and is lost", id)
		}
	}
	t.Logf("%d sent, %d there; answers: %v; the slowest took %v", len(l.sent), len(there), l.answers, l.slowest.Round(time.Millisecond))
}

// returns sends plants until one is acknowledged, and fails when that takes more than a second.
func (l *told) returns(t *testing.T, p *testkit.Server, id int64) {
	t.Helper()
	start, patience := time.Now(), testkit.NewPatience(time.Second)
	for l.send(t, p, id) != 200 {
		if patience.Over() {
			t.Fatalf("no create is answered 200 a second after the fault has ended")
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("writes returned after %v", time.Since(start).Round(time.Millisecond))
}

// wantRead fails unless a plant can be read, soon.
func wantRead(t *testing.T, p *testkit.Server, id int64) {
	t.Helper()
	start := time.Now()
	if a, err := p.Send("GET", fmt.Sprintf("/plants/%d", id), ""); err != nil || a.Status != 200 {
		t.Errorf("plant %d can't be read: %d %s %v", id, a.Status, a.Body, err)
	}
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("a read took %v", took.Round(time.Millisecond))
	}
}

// waitNotReady waits until the service is not ready for a reason that has these words.
func waitNotReady(t *testing.T, p *testkit.Server, words string, within time.Duration) {
	t.Helper()
	for patience := testkit.NewPatience(within); ; time.Sleep(20 * time.Millisecond) {
		status, got := p.Health(t, "/readyz")
		if status == 503 && strings.Contains(got, words) {
			return
		}
		if patience.Over() {
			t.Errorf("/readyz says %d %q, want %q in it", status, got, words)
			return
		}
	}
}

// strace is a tracer on a running server.
type strace struct {
	cmd  *exec.Cmd
	log  string
	once sync.Once
}

// inject makes system calls of the server fail, as strace -e inject says, until stop.
func inject(t *testing.T, p *testkit.Server, what string, args ...string) *strace {
	t.Helper()
	calls, _, _ := strings.Cut(what, ":")
	s := &strace{log: filepath.Join(t.TempDir(), "strace")}
	s.cmd = exec.Command("strace", append([]string{"-f", "-o", s.log, "-e", "signal=none", "-e", "trace=" + calls, "-e", "inject=" + what, "-p", strconv.Itoa(p.Cmd.Process.Pid)}, args...)...)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		testkit.Unavailable(t, "%s", "strace: "+err.Error())
	}
	t.Cleanup(s.stop)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "attached") {
			go func() { // who comes later is told there too
				for lines.Scan() {
				}
			}()
			return s
		}
		t.Log(lines.Text())
	}
	testkit.Unavailable(t, "strace does not attach here")
	return nil
}

// stop lets system calls work again.
func (s *strace) stop() {
	s.once.Do(func() {
		s.cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(3*time.Second, func() { s.cmd.Process.Kill() }) // it may wait for a process that is dead
		s.cmd.Wait()
		late.Stop()
	})
}

// calls is every call that the tracer saw, and how many of them it made fail.
func (s *strace) calls(t *testing.T) (all []string, injected int) {
	t.Helper()
	return straced(t, s.log)
}

func straced(t *testing.T, log string) (all []string, injected int) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		injected += strings.Count(line, "(INJECTED)")
		// Not the end of a thread, nor of a call whose begin has a line of its own: something else came in between.
		if strings.Contains(line, "(") && !strings.Contains(line, " resumed>") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all, injected
}

// On a disk that fills up, the checkpoint fails first, then the log can't grow. Neither costs a plant or the
// service, and with the first free bytes it goes on.
func TestVolumeFull(t *testing.T) {
	t.Parallel()
	v := testkit.NewVolume(t, 128<<20)
	db := v.Path("plants.db")
	p := testkit.StartFixed(t, db)
	v.Fill(20 << 20)
	l := newTold(60_000)
	var id int64
	for id = 1; id < 1000 && l.send(t, p, id) == 200; id++ {
	}
	if l.answers[50304] != 1 {
		t.Fatalf("answers %v, want 200 and then once 50304", l.answers)
	}
	if file, err := os.Stat(db); err != nil || file.Size() < 1<<20 {
		t.Errorf("the file has %d bytes: no checkpoint has met the full disk", file.Size())
	}
	waitNotReady(t, p, "full", time.Second)
	wantRead(t, p, 1)
	if err := os.Remove(v.Path("filler")); err != nil {
		t.Fatal(err)
	}
	l.returns(t, p, id)
	p.WaitReady(t, true, time.Second)
	for id++; id < 600; id++ { // past the next checkpoint
		if l.send(t, p, id) != 200 {
			t.Fatalf("answers %v after there was room", l.answers)
		}
	}
	if file, err := os.Stat(db); err != nil || file.Size() < 20<<20 {
		t.Errorf("the file has %d bytes: no checkpoint was made after there was room", file.Size())
	}
	p.Kill()
	testkit.StartFixed(t, db)
	l.check(t, db)
}

// A file system that can't be written any more, and then can again.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	for what, calls := range map[string]string{
		"writes are refused":   "pwrite64:error=EROFS",
		"the mount is refused": "pwrite64,?rmdir,unlinkat:error=EROFS",
	} {
		t.Run(what, func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "plants.db")
			p := testkit.StartFixed(t, db)
			l := newTold(10)
			l.send(t, p, 1)
			fault := inject(t, p, calls)
			for id := range int64(5) {
				if got := l.send(t, p, 10+id); got != 50303 {
					t.Errorf("a create: %d, want 50303", got)
				}
				time.Sleep(30 * time.Millisecond)
			}
			waitNotReady(t, p, map[bool]string{true: "read-only file system", false: "can't be written"}[strings.Contains(calls, "rmdir")], time.Second)
			wantRead(t, p, 1)
			fault.stop()
			l.returns(t, p, 20)
			p.WaitReady(t, true, time.Second)
			p.Kill()
			testkit.StartFixed(t, db)
			l.check(t, db)
		})
	}
}

// What ext4 does by itself after an error of the disk: it takes no more writes until it was unmounted and checked.
// A remount by hand is refused while the service has its files open.
func TestReadOnlyByTheKernel(t *testing.T) {
	t.Parallel()
	v := testkit.NewVolume(t, 16<<20)
	db := v.Path("plants.db")
	p := testkit.StartFixed(t, db)
	l := newTold(10)
	l.send(t, p, 1)
	if err := exec.Command("mount", "-o", "remount,ro", v.Folder).Run(); err == nil {
		t.Error("a remount was not refused")
	}
	v.Run("sync", "--file-system", v.Folder)
	if err := os.WriteFile("/sys/fs/ext4/"+v.Device()+"/trigger_fs_error", []byte("the test"), 0); err != nil {
		testkit.Unavailable(t, "%s", err.Error())
	}
	wantRead(t, p, 1)
	for id := range int64(5) {
		if got := l.send(t, p, 10+id); got != 50303 {
			t.Errorf("a create: %d, want 50303", got)
		}
		time.Sleep(30 * time.Millisecond)
	}
	waitNotReady(t, p, "written", time.Second)
	wantRead(t, p, 1)
	p.Kill()
	v.Unmount()
	exec.Command("e2fsck", "-p", v.Image).Run() // its exit code says that it repaired something
	v.Mount()
	p = testkit.StartFixed(t, db)
	if got := l.send(t, p, 20); got != 200 {
		t.Errorf("a create after a restart: %d", got)
	}
	l.check(t, db)
}

// After a sync that failed nothing is acknowledged, and nothing is synced again: the kernel may have dropped what
// the first one was to write, and a second one would say that all is well.
func TestSyncFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what   string
		file   string // whose sync fails
		size   int
		before int64 // plants that are sent first
		number int   // of the answer to the create that meets the failure
		words  string
		stop   func(*testkit.Server)
	}{
		{"of the start of the log", "-wal", 10, 0, 50302, "a commit failed (the disk failed to sync", func(p *testkit.Server) { p.Stop(20 * time.Second) }},
		{"of a commit", "-wal", 10, 3, 50302, "a commit failed (the disk failed to sync", func(p *testkit.Server) { p.Stop(20 * time.Second) }},
		{"of a commit, then a crash", "-wal", 10, 3, 50302, "a commit failed (the disk failed to sync", (*testkit.Server).Kill},
		{"of a checkpoint", "", 60_000, 245, 200, "a checkpoint failed (the disk failed to sync", func(p *testkit.Server) { p.Stop(20 * time.Second) }},
		{"of a large create that begins the log", "-wal", 3 << 20, 0, 50303, "a write failed (the disk failed to sync", func(p *testkit.Server) { p.Stop(20 * time.Second) }},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			db := filepath.Join(t.TempDir(), "plants.db")
			p := testkit.StartFixed(t, db)
			p.Stop(20 * time.Second) // which leaves no log
			p = testkit.StartFixed(t, db, "--max-body", "8000000")
			l := newTold(test.size)
			id := int64(1)
			for ; id <= test.before; id++ {
				l.send(t, p, id)
			}
			fault := inject(t, p, "fdatasync,fsync:error=EIO:when=1", "-P", db+test.file)
			got := l.send(t, p, id)
			for ; got == 200 && id < test.before+20 && isReady(t, p); id++ {
				got = l.send(t, p, id)
			}
			if got != test.number {
				t.Errorf("the create that met it: %d, want %d", got, test.number)
			}
			for n := range int64(10) {
				if got := l.send(t, p, 10_000+n); got != 50303 {
					t.Errorf("a create after that: %d, want 50303", got)
				}
				waitNotReady(t, p, test.words, 0)
				time.Sleep(20 * time.Millisecond)
			}
			if test.before > 0 {
				wantRead(t, p, 1)
			}
			test.stop(p)
			fault.stop()
			if calls, injected := fault.calls(t); len(calls) != 1 || injected != 1 {
				t.Errorf("syncs: want one, which failed; found\n%s", strings.Join(calls, "\n"))
			}
			p = testkit.StartFixed(t, db, "--max-body", "8000000")
			l.check(t, db)
			if got := l.send(t, p, id); got != 200 {
				t.Errorf("a create after a restart: %d", got)
			}
			l.check(t, db)
		})
	}
}

func isReady(t *testing.T, p *testkit.Server) bool {
	t.Helper()
	status, _ := p.Health(t, "/readyz")
	return status == 200
}

// A disk that fails during the start, at the first sync, the second, and so on: the start fails with a sentence,
// and one on a sound disk finds nothing that keeps it from going on.
func TestSyncFailsAtStart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for n := 1; ; n++ {
		db := filepath.Join(folder, fmt.Sprint(n, ".db"))
		log := db + ".strace"
		p := testkit.Launch(t, exec.Command("strace", "-D", "-f", "-o", log, "-e", "signal=none", "-e", "trace=fdatasync,fsync", "-e", fmt.Sprintf("inject=fdatasync,fsync:error=EIO:when=%d+", n),
			testkit.Binary, "serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"))
		for !strings.Contains(p.Stderr.String(), `"msg":"serving"`) && p.Running() {
			time.Sleep(5 * time.Millisecond)
		}
		if p.Running() {
			p.Kill()
			if _, injected := straced(t, log); injected > 0 {
				t.Errorf("the service serves after a sync of its start failed:\n%s", p.Stderr)
			}
			if n < 4 {
				t.Errorf("only %d syncs in a start", n-1)
			}
			return
		}
		if code := p.Cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.Stderr.String(), "failed to sync") && !strings.Contains(p.Stderr.String(), "input/output error") {
			t.Errorf("sync %d fails: exit code %d\n%s", n, code, p.Stderr)
		}
		p = testkit.StartFixed(t, db)
		l := newTold(10)
		if got := l.send(t, p, 1); got != 200 {
			t.Errorf("a create after sync %d failed: %d", n, got)
		}
		p.Kill()
		l.check(t, db)
	}
}

// A create that was written and not synced when the process died is there after the next start. Who sends it again is
// told so, and a power cut must not take it back.
func TestFoundInTheLog(t *testing.T) {
	t.Parallel()
	v := testkit.NewVolume(t, 16<<20)
	db := v.Path("plants.db")
	p := testkit.StartFixed(t, db)
	l := newTold(10)
	l.send(t, p, 1)
	fault := inject(t, p, "fdatasync,fsync:delay_enter=20000000", "-P", db+"-wal")
	sent := make(chan error)
	go func() {
		_, err := p.Send("POST", "/plants", l.body(2))
		sent <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if calls, _ := fault.calls(t); len(calls) > 0 { // all is written, and the sync waits
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a create syncs nothing")
		}
	}
	p.Cmd.Process.Kill()
	fault.stop()
	<-p.Ended
	if <-sent == nil {
		t.Fatal("a create was answered before its sync")
	}
	p = testkit.StartFixed(t, db)
	wantRead(t, p, 2) // or else the test shows nothing
	l.send(t, p, 2)
	v.Cut()
	p.Kill()
	v.Unmount()
	v.Mount()
	l.check(t, db)
}

// While the file system is frozen, reads go on, writes are answered in bounded time and never with 200, readiness tells;
// when it is thawed all goes on.
func TestFrozen(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"POST", "PUT", "/readyz"} {
		t.Run(strings.Trim(first, "/")+" meets it first", func(t *testing.T) {
			t.Parallel()
			frozen(t, first)
		})
	}
}

func frozen(t *testing.T, first string) {
	v := testkit.NewVolume(t, 32<<20)
	db := v.Path("plants.db")
	p := testkit.StartFixed(t, db)
	out, _, _ := testkit.Run(t, nil, "token", "issue", "--db", db, "--name", "stored")
	if p.Token = testkit.TokenPattern.FindString(out); p.Token == "" { // it is looked up in the file, which is a read too
		t.Fatal("no token was issued")
	}
	l := newTold(100)
	for id := range int64(20) {
		l.send(t, p, id)
	}
	if first == "POST" { // the first write after a start is another: it begins the log
		token := p.Token
		p.Stop(20 * time.Second)
		p = testkit.StartFixed(t, db)
		p.Token = token
		time.Sleep(150 * time.Millisecond) // the writer looks ten times a second
	}
	thawed, thaw := v.Freeze("60") // which is long enough for all that is looked at

	wantRead(t, p, 19) // in the other cases nobody has read since the last create
	var writes, readers sync.WaitGroup
	change := func(method string, id int64, want int) {
		if method == "POST" {
			if got := l.send(t, p, id); got != want {
				t.Errorf("POST: %d, want %d", got, want)
			}
			return
		}
		a, err := p.Send(method, fmt.Sprintf("/plants/%d", id), `{"name":"`+l.name(id)+`","tag":"new"}`)
		if err != nil || a.Number() != want {
			t.Errorf("%s: %d %s %v, want %d", method, a.Status, a.Body, err, want)
		}
	}
	switch first {
	case "POST":
		writes.Go(func() { change(first, 99, 50302) })
	case "PUT":
		writes.Go(func() { change(first, 18, 50302) })
	default: // nobody writes
		waitNotReady(t, p, "waited", 20*time.Second)
		thaw()
		p.WaitReady(t, true, time.Second)
		return
	}
	for deadline := time.Now().Add(20 * time.Second); !blocked(t, p); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a write does not wait for the disk")
		}
	}
	writes.Go(func() { change("DELETE", 19, 50301) })
	for id := range int64(200) {
		writes.Go(func() { l.send(t, p, 100+id) })
	}
	for range 8 {
		readers.Go(func() {
			for n := int64(0); ; n++ {
				select {
				case <-thawed:
					return
				case <-time.After(5 * time.Millisecond):
					wantRead(t, p, n%20)
				}
			}
		})
	}
	waitNotReady(t, p, "waited", 20*time.Second)
	writes.Wait() // nobody waits longer than a client of these tests does, or that is an error
	select {
	case <-thawed:
		t.Error("some were answered only after the thaw")
	default:
	}
	if l.answers[200] != 20 || l.answers[50301]+l.answers[50302] != len(l.sent)-20 {
		t.Errorf("answers %v, want no 200 but the 20 of before", l.answers)
	}
	if rss := p.Memory(t, "VmRSS"); rss > 200<<20 {
		t.Errorf("the service has %d MiB", rss>>20)
	}
	waitNotReady(t, p, "waited", time.Second)
	thaw()
	l.returns(t, p, 1000)
	p.WaitReady(t, true, time.Second)
	readers.Wait()

	// Shorter ones, as a snapshot needs, under load: a create takes longer, and no more than that.
	end := time.Now().Add(time.Second)
	for c := range int64(16) {
		writes.Go(func() {
			for id := 10_000 * (c + 1); time.Now().Before(end); id++ {
				if got := l.send(t, p, id); got != 200 {
					t.Errorf("a create around a short freeze: %d", got)
				}
			}
		})
	}
	for time.Now().Before(end) {
		thawed, _ := v.Freeze("0.3")
		wantRead(t, p, 0)
		<-thawed
	}
	writes.Wait()
	p.Kill()
	testkit.StartFixed(t, db)
	l.check(t, db)
}

// blocked reports whether a thread waits inside the kernel in a way that nothing interrupts.
func blocked(t *testing.T, p *testkit.Server) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if text, err := os.ReadFile(thread); err == nil && strings.Contains(string(text), ") D ") {
			return true
		}
	}
	return false
}

// Twenty write operations a second: slow, and nothing worse.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	v := testkit.NewVolume(t, 32<<20)
	db := v.Path("plants.db")
	p := testkit.StartFixed(t, db)
	v.Throttle(p, 20)
	l := newTold(100)
	start := time.Now()
	var id int64
	for ; time.Since(start) < 2*time.Second; id++ {
		l.send(t, p, id)
	}
	alone := float64(id) / time.Since(start).Seconds()
	if alone > 40 {
		t.Errorf("%.0f creates a second one after the other: the disk is not slow", alone)
	}
	var wg sync.WaitGroup
	for c := range int64(64) {
		wg.Go(func() {
			for n := int64(0); time.Since(start) < 5*time.Second; n++ {
				l.send(t, p, 1000*(c+1)+n)
			}
		})
	}
	for time.Since(start) < 5*time.Second {
		wantRead(t, p, 0)
		time.Sleep(20 * time.Millisecond)
	}
	wg.Wait()
	if l.answers[200] != len(l.sent) {
		t.Errorf("answers %v of %d: want every create answered 200, late", l.answers, len(l.sent))
	}
	p.WaitReady(t, true, time.Second)
	t.Logf("%.0f creates a second one after the other, %d with 64 clients", alone, (l.answers[200]-int(id))/3)
	p.Kill()
	testkit.StartFixed(t, db)
	l.check(t, db)
}
