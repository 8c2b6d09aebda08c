package sqlite

import (
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
	"plantstore/test/testkit/missing"
)

// fullDisk mounts a file system in memory, calls prepare with the path of a database on it, and fills it. free makes it
// have space again.
func fullDisk(t *testing.T, prepare func(path string)) (path string, free func()) {
	t.Helper()
	folder := t.TempDir()
	mount := osexec.Command("mount", "-t", "tmpfs", "-o", "size=4m", "plantstore-test", folder)
	if out, err := mount.CombinedOutput(); err != nil {
		missing.Report(t, "a file system cannot be mounted here: %s", out)
	}
	t.Cleanup(func() { osexec.Command("umount", "-l", folder).Run() })
	path = filepath.Join(folder, "plants.db")
	prepare(path)
	filler, err := os.Create(path + ".filler")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { filler.Close() })
	for err == nil {
		_, err = filler.Write(make([]byte, pageSize))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return path, func() {
		if err := filler.Truncate(0); err != nil {
			t.Fatal(err)
		}
	}
}

// leaveKilled leaves a database with one plant in its WAL, as a killed process does.
func leaveKilled(t *testing.T) func(path string) {
	return func(path string) {
		w := testWriter(t)
		w.mustAdd(t, 1, "Fern")
		copyFiles(t, w.files.path, path, "", walSuffix, shmSuffix)
	}
}

// A killed service starts on a full disk, serves reads, and accepts writes when there is space. After a clean stop
// there is no index of the WAL, so the start fails and names the full disk.
func TestStartOnFullDisk(t *testing.T) {
	path, free := fullDisk(t, leaveKilled(t))
	s := open(t, path)
	create := func(id int64, name string) error {
		_, err := s.CreateBatch(t.Context(), []plant.Record{storagetest.Record("main", id, name, "-")})
		return err
	}
	for range 2 {
		for name, err := range map[string]error{
			"CreateBatch of a plant that may not be on disk": create(1, "Fern"), // first: it needs no write
			"Check": s.Check(t.Context()), "CreateBatch": create(2, "x"),
			"Remove": storagetest.Remove(t.Context(), s, "main", 1, nil), "AddToken": s.AddToken(t.Context(), token.Token{}),
		} {
			if !errors.Is(err, storage.ErrFull) {
				t.Errorf("%s on a full disk = %v, want %v", name, err, storage.ErrFull)
			}
		}
		if p, err := s.Get(t.Context(), "main", 1); err != nil || p.Name != "Fern" {
			t.Errorf("Get() = %v, %v, want the plant that is stored", p, err)
		}
	}
	free()
	if err := errors.Join(s.Check(t.Context()), create(2, "x")); err != nil {
		t.Errorf("with free space: %v", err)
	}
	for what, prepare := range map[string]func(path string){
		"a new database": func(string) {},
		"after a stop": func(path string) {
			leaveKilled(t)(path)
			if err := openWriter(t, path).close(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		path, _ := fullDisk(t, prepare)
		if _, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "full") {
			t.Errorf("Open() of %s on a full disk = %v, want that it names the disk", what, err)
		}
	}
}

// A check finds the full disk before a create fails. The first frames may still fit into the last page of the WAL.
func TestCheckOnFullDisk(t *testing.T) {
	var s *Storage
	_, free := fullDisk(t, func(path string) { s = open(t, path) })
	var err error
	for range 10 {
		if err = s.Check(t.Context()); err != nil {
			break
		}
	}
	if !errors.Is(err, storage.ErrFull) {
		t.Errorf("Check() on a full disk = %v, want %v", err, storage.ErrFull)
	}
	free()
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check() with free space = %v", err)
	}
}
