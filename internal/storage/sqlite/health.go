package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"plantstore/internal/storage"
)

const (
	checkInterval = 100 * time.Millisecond // between two calls of checkWritable
	slowWrite     = 2 * time.Second        // a probe that takes longer makes check fail
)

const (
	fileRemoved = "its file was removed, renamed or replaced"
	walRemoved  = "its WAL was removed, renamed or replaced"
	shmRemoved  = "the index of its WAL (-shm) was removed, renamed or replaced"
)

type files struct {
	path           string      // as given by the operator
	target         string      // the path without symbolic links: SQLite creates the WAL next to it
	file, wal, shm os.FileInfo // the database, the WAL and its index when they were opened; nil before
}

// missing returns a message if a path no longer names the file that was opened, and otherwise "". It is called for each
// commit and makes three system calls.
func (f *files) missing() string {
	switch {
	case !names(f.path, f.file):
		return fileRemoved
	case f.wal != nil && !names(f.target+walSuffix, f.wal):
		return walRemoved
	case !f.sharesIndex():
		return shmRemoved
	}
	return ""
}

// sharesIndex reports whether other processes use the same index of the WAL. Its locks are those between processes:
// without them, another process may write to the same part of the WAL.
func (f *files) sharesIndex() bool { return f.shm == nil || names(f.target+shmSuffix, f.shm) }

func names(path string, file os.FileInfo) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(file, now)
}

// checkWritable returns why nothing can be written, or copied: the WAL may contain writes of other processes if the
// files are not those that were opened.
//
// It waits while the file system is frozen, as a system call: removing a directory that does not exist needs a writable
// file system. SQLite would wait in a page fault of the memory-mapped index of the WAL, where Go can't stop the thread
// for a garbage collection, and the whole process would hang.
func (w *writer) checkWritable() error {
	if err := w.stopReason(); err != nil {
		return err
	}
	if reason := w.files.missing(); reason != "" {
		return w.stop(reason)
	}
	if err := syscall.Rmdir(w.files.target + "-none"); errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	return nil
}

// stop makes the writer refuse all further writes until the service is restarted, and returns the reason. The first
// reason stays.
func (w *writer) stop(reason string) error {
	err := fmt.Errorf("%w: %s, so nothing more is written until the service is started again",
		storage.ErrUnavailable, reason)
	w.stopped.CompareAndSwap(nil, &err)
	return w.stopReason()
}

func (w *writer) stopReason() error {
	if err := w.stopped.Load(); err != nil {
		return *err
	}
	return nil
}

// record keeps whether the last write succeeded. Errors about the request, such as plant.ErrNotFound, do not show that.
func (w *writer) record(err error) {
	if err == nil || errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrUnavailable) ||
		errors.Is(err, storage.ErrUnknown) {
		w.failed = err != nil
	}
}

// check returns why a write would fail now. Its probe is an empty transaction, which fails if the file is locked. On a
// disk that is nearly full the probe writes, so that a full disk is detected while no client creates anything. check
// waits no longer than slowWrite, because a disk that hangs must not hang the caller.
func (w *writer) check(ctx context.Context) error {
	if err := w.stopReason(); err != nil {
		return err
	}
	if !names(w.files.path, w.files.file) { // it may come back: the probe would stop the writer for good
		return fmt.Errorf("%w: %s", storage.ErrUnavailable, fileRemoved)
	}
	probed := make(chan error, 1)
	go func() {
		probed <- w.tx(func() error {
			if free := statDisk(w.files.target).free; free < 0 || free >= minSpace {
				return nil
			}
			return w.rewriteVersion()
		})
	}()
	select {
	case err := <-probed:
		return err
	case <-time.After(slowWrite):
		return fmt.Errorf("%w: a write has waited %d s for the disk", storage.ErrUnavailable, slowWrite/time.Second)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rewriteVersion writes a page without a change.
func (w *writer) rewriteVersion() error {
	version, err := number(w.conn, "PRAGMA user_version")
	if err != nil {
		return err
	}
	return exec(w.conn, fmt.Sprintf("PRAGMA user_version = %d", version))
}
