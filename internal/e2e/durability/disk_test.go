//go:build linux

package durability

import (
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

// mountMemory mounts a small file system in memory that can be resized.
func mountMemory(t *testing.T, size string) (folder string, resize func(string)) {
	t.Helper()
	folder = t.TempDir()
	mount := func(options string) {
		cmd := exec.Command("mount", "-t", "tmpfs", "-o", options, "plantstore-test", folder)
		if out, err := cmd.CombinedOutput(); err != nil {
			testkit.Unavailable(t, "a file system cannot be mounted here: %s", out)
		}
	}
	mount("size=" + size)
	t.Cleanup(func() { exec.Command("umount", "-l", folder).Run() })
	return folder, func(size string) { mount("remount,size=" + size) }
}

// On a full disk a create returns a 503 that says that nothing was stored, /readyz reports it, and when space is free
// again the next create succeeds.
func TestDiskFull(t *testing.T) {
	folder, resize := mountMemory(t, "1m")
	db := filepath.Join(folder, "plants.db")
	s := testkit.Start(t, db)
	if !strings.Contains(s.Stderr.String(), "in-memory") {
		t.Errorf("no warning that the database is on a file system in memory:\n%s", s.Stderr)
	}
	name := strings.Repeat("x", 8000)
	acked := 0
	for ; acked < 1000; acked++ {
		a := s.Create(t, fmt.Sprintf(`{"id":%d,"name":%q}`, acked, name))
		if a.Status == 200 {
			continue
		}
		testkit.WantError(t, "a create on a full disk", a, 50304)
		if a.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		break
	}
	if body := s.WaitReady(t, false); !strings.Contains(body, "full") {
		t.Errorf("/readyz: %q, want the reason", body)
	}
	refused := fmt.Sprintf("/plants/%d", acked)
	testkit.WantError(t, "read the refused plant", s.Do(t, "GET", refused, ""), 40401)
	if a := s.Do(t, "GET", "/plants/0", ""); a.Status != 200 {
		t.Errorf("a read on a full disk: %d", a.Status)
	}
	resize("8m")
	body := fmt.Sprintf(`{"id":%d,"name":"x"}`, acked)
	testkit.WantResponse(t, "a create with free space", s.Create(t, body), 200, `{"name":"x"}`)
	s.WaitReady(t, true)
	s.Kill()
	s = testkit.StartAgain(t, s, db)
	count := s.Do(t, "GET", "/plants?limit=1", "", "Prefer: count=exact").Header.Get("Plants-Count")
	if count != fmt.Sprint(acked+1) {
		t.Errorf("%s plants are stored, want the %d that were acknowledged", count, acked+1)
	}
}

// The service becomes ready again without any create.
func TestReadinessRecovers(t *testing.T) {
	folder, resize := mountMemory(t, "1m")
	s := testkit.Start(t, filepath.Join(folder, "plants.db"))
	body := `{"id":%d,"name":"` + strings.Repeat("x", 8000) + `"}`
	for id := 0; s.Create(t, fmt.Sprintf(body, id)).Status == 200; id++ {
		if id == 1000 {
			t.Fatal("the disk does not become full")
		}
	}
	s.WaitReady(t, false)
	resize("8m")
	s.WaitReady(t, true)
}

func TestFileIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	s := testkit.Start(t, path)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	testkit.WantError(t, "a create on a locked file", s.Create(t, `{"id":1,"name":"x"}`), 50303)
	if body := s.WaitReady(t, false); !strings.Contains(body, "locked") {
		t.Errorf("/readyz: %q, want the reason", body)
	}
	wantHealthWhileLocked(t, s)
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	s.WaitReady(t, true)
	testkit.WantResponse(t, "a create on the unlocked file", s.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
}

// wantHealthWhileLocked checks that /readyz does not wait as long as a create that waits for the lock. A busy machine
// can delay it, so it has several tries.
func wantHealthWhileLocked(t *testing.T, s *testkit.Server) {
	t.Helper()
	for range 5 {
		created := make(chan int, 1)
		go func() {
			a, err := s.Send("POST", "/plants", `{"id":1,"name":"x"}`)
			if err != nil {
				t.Errorf("a create on a locked file: %v", err)
			}
			created <- a.Number()
		}()
		time.Sleep(200 * time.Millisecond) // so that the create is first
		s.Health(t, "/readyz")
		healthFirst := len(created) == 0
		if number := <-created; healthFirst && number == 50303 { // Otherwise the create did not wait for the lock.
			return
		}
	}
	t.Error("/readyz takes as long as a create that waits for the lock")
}
