package e2e

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience is for what the service has promised to do within a time. The machine itself may stop for a second or two:
// where little was asked in that time, more is waited.
type patience struct {
	within time.Duration
	start  time.Time
	asked  int
}

func patient(within time.Duration) *patience { return &patience{within: within, start: time.Now()} }

// over is asked after each question, and reports whether that was the last.
func (p *patience) over() bool {
	p.asked++
	took := time.Since(p.start)
	return p.within == 0 || took > p.within && (p.asked > 20 || took > p.within+5*time.Second)
}

// ready waits until /readyz says yes or no, and returns its words.
func (p *process) ready(t *testing.T, want bool, within time.Duration) string {
	t.Helper()
	for patience := patient(within); ; time.Sleep(20 * time.Millisecond) {
		status, words := p.health(t, "/readyz")
		if (status == 200) == want {
			return words
		}
		if patience.over() {
			t.Fatalf("/readyz is %d %q after %v, want ready: %v", status, words, within, want)
		}
	}
}

// mounted is a small file system of its own.
func mounted(t *testing.T, size string) (folder string, resize func(string)) {
	t.Helper()
	folder = t.TempDir()
	mount := func(options string) {
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "plantstore-test", folder).CombinedOutput(); err != nil {
			lacking(t, "a file system can't be mounted here: %s", out)
		}
	}
	mount("size=" + size)
	t.Cleanup(func() { exec.Command("umount", "-l", folder).Run() })
	return folder, func(size string) { mount("remount,size=" + size) }
}

// A full disk is a 503 that says that nothing was stored, readiness tells, and when there is room
// again so does the next answer.
func TestDiskFull(t *testing.T) {
	folder, resize := mounted(t, "1m")
	p := serve(t, filepath.Join(folder, "plants.db"))
	if !strings.Contains(p.stderr.String(), "in-memory") {
		t.Errorf("no warning that the database is on a file system in memory:\n%s", p.stderr)
	}
	name := strings.Repeat("x", 8000)
	acked := 0
	for ; acked < 1000; acked++ {
		a := p.create(t, fmt.Sprintf(`{"id":%d,"name":%q}`, acked, name))
		if a.status == 200 {
			continue
		}
		wantFailure(t, "a create on a full disk", a, 50304)
		if a.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		break
	}
	if words := p.ready(t, false, time.Second); !strings.Contains(words, "full") {
		t.Errorf("/readyz says %q", words)
	}
	wantFailure(t, "what was refused", p.ask(t, "GET", fmt.Sprintf("/plants/%d", acked), ""), 40401)
	if a := p.ask(t, "GET", "/plants/0", ""); a.status != 200 {
		t.Errorf("a read on a full disk: %d", a.status)
	}
	resize("8m")
	wantAnswer(t, "a create when there is room", p.create(t, fmt.Sprintf(`{"id":%d,"name":"x"}`, acked)), 200, `{"name":"x"}`)
	p.ready(t, true, time.Second)
	p.kill()
	p = serveAgain(t, p, filepath.Join(folder, "plants.db"))
	if n := p.ask(t, "GET", "/plants?limit=1", "", "Prefer: count=exact").header.Get("Plants-Count"); n != fmt.Sprint(acked+1) {
		t.Errorf("%s plants are there, want the %d that were answered 200", n, acked+1)
	}
}

func serveAgain(t *testing.T, before *process, db string) *process {
	t.Helper()
	p := serve(t, db)
	p.token = before.token
	return p
}

// Readiness finds out by itself that there is room again, also when nobody creates anything.
func TestReadinessHeals(t *testing.T) {
	folder, resize := mounted(t, "1m")
	p := serve(t, filepath.Join(folder, "plants.db"))
	for id := 0; p.create(t, fmt.Sprintf(`{"id":%d,"name":%q}`, id, strings.Repeat("x", 8000))).status == 200; id++ {
	}
	p.ready(t, false, time.Second)
	resize("8m")
	p.ready(t, true, 2*time.Second)
}

func TestFileIsRemoved(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	p := serve(t, db)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(db + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if words := p.ready(t, false, time.Second); !strings.Contains(words, "removed") {
		t.Errorf("/readyz says %q", words)
	}
	time.Sleep(150 * time.Millisecond) // the writer looks ten times a second
	wantFailure(t, "a create without a file", p.create(t, `{"id":1,"name":"x"}`), 50303)
}

func TestFileIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	p := serve(t, path)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan answer)
	go func() { done <- p.create(t, `{"id":1,"name":"x"}`) }()
	time.Sleep(100 * time.Millisecond)
	start := time.Now()
	p.health(t, "/readyz")
	if took := time.Since(start); took > 4*time.Second { // a create waits for 5 s
		t.Errorf("/readyz took %v while a create waits", took)
	}
	wantFailure(t, "a create on a locked file", <-done, 50303)
	if words := p.ready(t, false, time.Second); !strings.Contains(words, "locked") {
		t.Errorf("/readyz says %q", words)
	}
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	p.ready(t, true, 8*time.Second)
	wantAnswer(t, "after that", p.create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
}
