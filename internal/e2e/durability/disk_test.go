package durability

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

// mounted is a small file system of its own.
func mounted(t *testing.T, size string) (folder string, resize func(string)) {
	t.Helper()
	folder = t.TempDir()
	mount := func(options string) {
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "plantstore-test", folder).CombinedOutput(); err != nil {
			testkit.Unavailable(t, "a file system can't be mounted here: %s", out)
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
	p := testkit.Start(t, filepath.Join(folder, "plants.db"))
	if !strings.Contains(p.Stderr.String(), "in-memory") {
		t.Errorf("no warning that the database is on a file system in memory:\n%s", p.Stderr)
	}
	name := strings.Repeat("x", 8000)
	acked := 0
	for ; acked < 1000; acked++ {
		a := p.Create(t, fmt.Sprintf(`{"id":%d,"name":%q}`, acked, name))
		if a.Status == 200 {
			continue
		}
		testkit.WantError(t, "a create on a full disk", a, 50304)
		if a.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		break
	}
	if words := p.WaitReady(t, false, time.Second); !strings.Contains(words, "full") {
		t.Errorf("/readyz says %q", words)
	}
	testkit.WantError(t, "what was refused", p.Do(t, "GET", fmt.Sprintf("/plants/%d", acked), ""), 40401)
	if a := p.Do(t, "GET", "/plants/0", ""); a.Status != 200 {
		t.Errorf("a read on a full disk: %d", a.Status)
	}
	resize("8m")
	testkit.WantResponse(t, "a create when there is room", p.Create(t, fmt.Sprintf(`{"id":%d,"name":"x"}`, acked)), 200, `{"name":"x"}`)
	p.WaitReady(t, true, time.Second)
	p.Kill()
	p = testkit.StartAgain(t, p, filepath.Join(folder, "plants.db"))
	if n := p.Do(t, "GET", "/plants?limit=1", "", "Prefer: count=exact").Header.Get("Plants-Count"); n != fmt.Sprint(acked+1) {
		t.Errorf("%s plants are there, want the %d that were answered 200", n, acked+1)
	}
}

// Readiness finds out by itself that there is room again, also when nobody creates anything.
func TestReadinessHeals(t *testing.T) {
	folder, resize := mounted(t, "1m")
	p := testkit.Start(t, filepath.Join(folder, "plants.db"))
	for id := 0; p.Create(t, fmt.Sprintf(`{"id":%d,"name":%q}`, id, strings.Repeat("x", 8000))).Status == 200; id++ {
	}
	p.WaitReady(t, false, time.Second)
	resize("8m")
	p.WaitReady(t, true, 2*time.Second)
}

func TestFileIsRemoved(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	p := testkit.Start(t, db)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(db + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if words := p.WaitReady(t, false, time.Second); !strings.Contains(words, "removed") {
		t.Errorf("/readyz says %q", words)
	}
	time.Sleep(150 * time.Millisecond) // the writer looks ten times a second
	testkit.WantError(t, "a create without a file", p.Create(t, `{"id":1,"name":"x"}`), 50303)
}

func TestFileIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	p := testkit.Start(t, path)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan testkit.Response)
	go func() { done <- p.Create(t, `{"id":1,"name":"x"}`) }()
	time.Sleep(100 * time.Millisecond)
	start := time.Now()
	p.Health(t, "/readyz")
	if took := time.Since(start); took > 4*time.Second { // a create waits for 5 s
		t.Errorf("/readyz took %v while a create waits", took)
	}
	testkit.WantError(t, "a create on a locked file", <-done, 50303)
	if words := p.WaitReady(t, false, time.Second); !strings.Contains(words, "locked") {
		t.Errorf("/readyz says %q", words)
	}
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	p.WaitReady(t, true, 8*time.Second)
	testkit.WantResponse(t, "after that", p.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
}
