package sqlite

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/storagetest"
)

// Stats reports the sizes of the files, checkpoints, and a writer that needs a restart.
func TestStats(t *testing.T) {
	s := newStorage(t)
	path := s.writer.files.path
	checkpoints := 0
	s.ObserveCheckpoints(func(took time.Duration, err error) {
		if checkpoints++; took <= 0 || err != nil {
			t.Errorf("a checkpoint took %v, %v", took, err)
		}
	})
	for id := range int64(3) {
		storagetest.Create(t, s, storagetest.Record("main", id, "x", "-"))
	}
	file, err := os.Stat(path)
	wal, walErr := os.Stat(path + walSuffix)
	if err != nil || walErr != nil {
		t.Fatal(err, walErr)
	}
	got := s.Stats()
	if got.Bytes != file.Size() || got.WALBytes != wal.Size() || got.Stopped || got.IdleConns != got.MaxConns ||
		got.UsedConns != 0 || got.Engine != "sqlite" || s.Lanes() != 1 {
		t.Errorf("Stats() = %+v, the files have %d and %d bytes", got, file.Size(), wal.Size())
	}
	s.writer.checkpointNow()
	s.writer.stop("a test")
	if !s.Stats().Stopped || checkpoints != 1 {
		t.Errorf("Stats() = %+v after stop, %d checkpoints", s.Stats(), checkpoints)
	}
}

// replace replaces a file by a copy.
func replace(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(path), os.WriteFile(path, content, 0o600))
}

func TestFileRemovedOrReplaced(t *testing.T) {
	rename := func(path string) error { return os.Rename(path, path+".old") }
	for name, change := range map[string]func(path string) error{
		"removed": os.Remove, "renamed": rename, "replaced": replace,
		"in a folder that is renamed": func(path string) error { return rename(filepath.Dir(path)) },
	} {
		for suffix, reason := range map[string]string{"": fileRemoved, walSuffix: walRemoved, shmSuffix: shmRemoved} {
			if name == "in a folder that is renamed" {
				reason = fileRemoved
			}
			t.Run(name+suffix, func(t *testing.T) {
				w := testWriter(t)
				if err := change(w.files.path + suffix); err != nil {
					t.Fatal(err)
				}
				w.checked = time.Time{}
				wantFailure(t, w, w.addPlant(1, "x"), storage.ErrUnavailable, reason, true)
			})
			t.Run(name+suffix+" during a write", func(t *testing.T) {
				w := testWriter(t)
				w.mustAdd(t, 1, "x")
				err := w.addDuring(func() error { return change(w.files.path + suffix) })
				if errors.Is(err, storage.ErrUnavailable) { // it would mean that nothing was stored
					t.Errorf("a write = %v, want only %v", err, storage.ErrUnknown)
				}
				wantFailure(t, w, err, storage.ErrUnknown, reason, true)
			})
		}
	}
}

// addDuring inserts a plant and calls change before the commit.
func (w *writer) addDuring(change func() error) error {
	return w.tx(func() error {
		if _, err := w.insert(&plant.Record{Store: "main", Plant: plant.Plant{ID: 2}}); err != nil {
			return err
		}
		return change()
	})
}

// The index of the WAL is checked before every write: another process may write to the WAL as soon as it is removed.
func TestIndexRemovedSinceLastCheck(t *testing.T) {
	w := testWriter(t)
	w.checked = time.Now().Add(time.Hour)
	w.mustAdd(t, 1, "x")
	wal, err := os.ReadFile(w.files.path + walSuffix)
	if err := errors.Join(err, os.Remove(w.files.path+shmSuffix)); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, w, w.addPlant(2, "x"), storage.ErrUnavailable, shmRemoved, true)
	if now, err := os.ReadFile(w.files.path + walSuffix); err != nil || !bytes.Equal(now, wal) {
		t.Errorf("the WAL was changed, %v", err)
	}
}

// Without the shared index of the WAL, a close copies nothing: the WAL may contain writes of other processes.
func TestNoCheckpointWithoutIndex(t *testing.T) {
	w := testWriter(t)
	w.mustAdd(t, 1, "x")
	before, err := os.ReadFile(w.files.path)
	if err := errors.Join(err, os.Remove(w.files.path+shmSuffix), w.close()); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(w.files.path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the WAL was copied into the file, %v", err)
	}
	if _, err := os.Stat(w.files.path + walSuffix); err != nil {
		t.Error(err)
	}
}

// If the path is a symbolic link, the WAL is next to its target, and changing the link replaces the file.
func TestSymbolicLink(t *testing.T) {
	target, link := filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(createFile(target), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	w := openWriter(t, link)
	defer w.close()
	w.mustAdd(t, 1, "x")
	if err := errors.Join(createFile(target+".new"), os.Remove(link), os.Symlink(target+".new", link)); err != nil {
		t.Fatal(err)
	}
	w.checked = time.Now().Add(time.Hour)
	wantFailure(t, w, w.addPlant(2, "x"), storage.ErrUnknown, fileRemoved, true)
}

// A check of a disk that hangs ends.
func TestCheckOfSlowWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testWriter(t)
		w.lock <- struct{}{}
		before := time.Now()
		err := w.check(t.Context())
		if err == nil || !strings.Contains(err.Error(), "a write has waited 2 s") || time.Since(before) != slowWrite {
			t.Errorf("check() = %v after %v", err, time.Since(before))
		}
		<-w.lock
		w.mustAdd(t, 1, "x")
	})
}

// A write waits for another process that writes. If that does not end, the write and the probe of a check fail.
func TestLockedByAnother(t *testing.T) {
	w := testWriter(t)
	other, err := openWritable(w.files.path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := exec(other, "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	w.conn.SetBusyTimeout(time.Millisecond)
	wantFailure(t, w, w.addPlant(1, "x"), storage.ErrUnavailable, "locked", false)
	wantFailure(t, w, w.check(t.Context()), storage.ErrUnavailable, "locked", false)
	w.conn.SetBusyTimeout(busyTimeout)
	ended := make(chan error)
	time.AfterFunc(100*time.Millisecond, func() { ended <- exec(other, "ROLLBACK") })
	written := make(chan error, 1)
	go func() { written <- w.addPlant(1, "x") }()
	if err := errors.Join(<-ended, <-written, w.check(t.Context())); err != nil {
		t.Errorf("a write behind another process = %v", err)
	}
}
