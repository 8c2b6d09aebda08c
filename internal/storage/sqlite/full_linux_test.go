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

// fullDisk is a file system in memory without free space.
type fullDisk struct {
	t    *testing.T
	path string // of a database on it
}

// newFullDisk mounts a file system, calls prepare with the path of a database on it, and fills it.
func newFullDisk(t *testing.T, prepare func(path string)) *fullDisk {
	t.Helper()
	folder := t.TempDir()
	mount := osexec.Command("mount", "-t", "tmpfs", "-o", "size=4m", "plantstore-test", folder)
	if out, err := mount.CombinedOutput(); err != nil {
		missing.Report(t, "a file system cannot be mounted here: %s", out)
	}
	t.Cleanup(func() { osexec.Command("umount", "-l", folder).Run() })
	d := &fullDisk{t, filepath.Join(folder, "plants.db")}
	prepare(d.path)
	d.fill()
	return d
}

func (d *fullDisk) fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.path+".filler", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, pageSize))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
}

func (d *fullDisk) leave(free int64) {
	d.t.Helper()
	info, err := os.Stat(d.path + ".filler")
	if err == nil {
		err = os.Truncate(d.path+".filler", info.Size()-free)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// leaveKilled leaves a database with one plant in its WAL, as a killed process does.
func leaveKilled(t *testing.T) func(path string) {
	return func(path string) {
		w := testWriter(t)
		w.mustAdd(t, 1, "Fern")
		copyFiles(t, w.files.path, path)
		index, err := os.ReadFile(w.files.path + shmSuffix)
		if err := errors.Join(err, os.WriteFile(path+shmSuffix, index, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// A killed service starts on a full disk, serves reads, and accepts writes when there is space. After a clean stop
// there is no index of the WAL, so the start fails and names the full disk.
func TestStartOnFullDisk(t *testing.T) {
	d := newFullDisk(t, leaveKilled(t))
	s := open(t, d.path)
	create := func() error {
		_, err := s.CreateBatch(t.Context(), []plant.Record{{Store: "main", Plant: plant.Plant{ID: 2}}})
		return err
	}
	for range 2 {
		for name, err := range map[string]error{
			"Check": s.Check(t.Context()), "CreateBatch": create(),
			"Remove": storagetest.Remove(t.Context(), s, "main", 1, nil), "AddToken": s.AddToken(t.Context(), token.Token{}),
		} {
			if !errors.Is(err, storage.ErrFull) {
				t.Errorf("%s() on a full disk = %v, want %v", name, err, storage.ErrFull)
			}
		}
		if p, err := s.Get(t.Context(), "main", 1); err != nil || p.Name != "Fern" {
			t.Errorf("Get() = %v, %v, want the plant that is stored", p, err)
		}
	}
	d.leave(2 * minSpace)
	if err := errors.Join(s.Check(t.Context()), create()); err != nil {
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
		d := newFullDisk(t, prepare)
		if _, err := Open(t.Context(), d.path); err == nil || !strings.Contains(err.Error(), "full") {
			t.Errorf("Open() of %s on a full disk = %v, want that it names the disk", what, err)
		}
	}
}

// A check finds the full disk before a create fails. The first frames may still fit into the last page of the WAL.
func TestCheckOnFullDisk(t *testing.T) {
	var s *Storage
	d := newFullDisk(t, func(path string) { s = open(t, path) })
	var err error
	for range 10 {
		if err = s.Check(t.Context()); err != nil {
			break
		}
	}
	if !errors.Is(err, storage.ErrFull) {
		t.Errorf("Check() on a full disk = %v, want %v", err, storage.ErrFull)
	}
	d.leave(2 * minSpace)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check() with free space = %v", err)
	}
}
