package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"plantstore/internal/store"
)

const (
	checkInterval = 100 * time.Millisecond // between two calls of checkWritable
	slowWrite     = 2 * time.Second        // a write that takes longer makes check fail
)

const (
	fileRemoved = "its file was removed, renamed or replaced"
	walRemoved  = "its WAL was removed, renamed or replaced"
	shmRemoved  = "the index of its WAL (-shm) was removed, renamed or replaced"
)

// checkWritable returns why nothing can be written, without writing. If the database is open for reading only, it
// tries to open it for writing.
func (w *writer) checkWritable() error {
	if reason := w.missingFile(); reason != "" {
		return w.stop(reason)
	}
	// Removing a directory that does not exist requires a writable file system, and waits while it is frozen, as a
	// system call. SQLite would wait in a page fault of the memory-mapped index of the WAL, where Go can't stop the
	// thread for a garbage collection: the whole process would hang.
	if err := syscall.Rmdir(w.target + "-none"); errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	if w.conn == nil {
		return w.connect()
	}
	return nil
}

// missingFile returns a message if a path no longer names the file that was opened, and otherwise "". It is called for
// each commit and makes three system calls.
func (w *writer) missingFile() string {
	switch {
	case !names(w.path, w.file, &w.fileSize):
		return fileRemoved
	case w.wal != nil && !names(w.target+walSuffix, w.wal, &w.walSize):
		return walRemoved
	case !w.sharesIndex():
		return shmRemoved
	}
	return ""
}

// sharesIndex reports whether other processes use the same index of the WAL. Its locks are those between processes:
// without them, another process may write to the same part of the WAL.
func (w *writer) sharesIndex() bool { return w.shm == nil || names(w.target+shmSuffix, w.shm, nil) }

// names reports whether a path names the file, and records its size if size is not nil.
func names(path string, file os.FileInfo, size *atomic.Int64) bool {
	now, err := os.Stat(path)
	if err != nil || !os.SameFile(file, now) {
		return false
	}
	if size != nil {
		size.Store(now.Size())
	}
	return true
}

// stop makes the writer refuse all further writes until the service is restarted, and returns the reason.
func (w *writer) stop(reason string) error {
	w.stopped = true
	w.needsRestart.Store(true)
	err := fmt.Errorf("%w: %s, so nothing more is written until the service is started again",
		store.ErrUnavailable, reason)
	w.setFailure(err)
	return err
}

// record keeps for check whether the last write could be made. Errors about the request, such as
// plant.ErrNotFound, do not count as failures.
func (w *writer) record(err error) {
	switch {
	case w.stopped:
	case errors.Is(err, store.ErrFull), errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknown):
		w.setFailure(err)
	default:
		w.failure.Store(nil)
	}
}

func (w *writer) setFailure(err error) { w.failure.Store(&err) }

func (w *writer) lastFailure() error {
	if err := w.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// check returns why a write would fail now. It waits for a probe, but no longer than slowWrite, because a disk that
// hangs must not hang the caller.
func (w *writer) check(ctx context.Context) error {
	slow := func(waited time.Duration) error {
		return fmt.Errorf("%w: a write has waited %d s for the disk", store.ErrUnavailable, waited/time.Second)
	}
	failure := w.lastFailure()
	if failure == nil && !names(w.path, w.file, &w.fileSize) {
		return fmt.Errorf("%w: %s", store.ErrUnavailable, fileRemoved)
	}
	if started := w.started.Load(); started != nil && time.Since(*started) > slowWrite {
		return cmp.Or(failure, slow(time.Since(*started)))
	}
	wait := slowWrite
	if failure != nil {
		wait /= 4 // /readyz waits for a second, and the reason must be returned before
	}
	probed := make(chan error, 1)
	go func() { probed <- w.probe(failure != nil || isFull(w.target)) }()
	select {
	case err := <-probed:
		return err
	case <-time.After(wait):
		return cmp.Or(failure, slow(slowWrite))
	case <-ctx.Done():
		return cmp.Or(failure, ctx.Err())
	}
}

// probe runs an empty transaction, which fails if the file is locked. With write, it also writes, so that a full disk
// and its recovery are detected while no client creates anything.
func (w *writer) probe(write bool) error {
	return w.tx(func() error {
		if !write {
			return nil
		}
		version, err := number(w.conn, "PRAGMA user_version")
		if err != nil {
			return err
		}
		return exec(w.conn, fmt.Sprintf("PRAGMA user_version = %d", version))
	})
}
