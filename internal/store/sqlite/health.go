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

// files are the files of an open database.
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

// names reports whether a path names a file.
func names(path string, file os.FileInfo) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(file, now)
}

// readSizes reads the sizes of the files for Stats.
func (w *writer) readSizes() {
	if info, err := os.Stat(w.files.target); err == nil {
		w.fileSize.Store(info.Size())
	}
	if info, err := os.Stat(w.files.target + walSuffix); err == nil {
		w.walSize.Store(info.Size())
	}
}

// waitFrozen waits while the file system is frozen, as a system call: removing a directory that does not exist needs a
// writable file system. SQLite would wait in a page fault of the memory-mapped index of the WAL, where Go can't stop
// the thread for a garbage collection, and the whole process would hang. It returns an error if nothing can be written.
func waitFrozen(target string) error {
	if err := syscall.Rmdir(target + "-none"); errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return nil
}

// checkWritable returns why nothing can be written, without writing.
func (w *writer) checkWritable() error {
	if reason := w.files.missing(); reason != "" {
		return w.stop(reason)
	}
	return waitFrozen(w.files.target)
}

// stop makes the writer refuse all further writes until the service is restarted, and returns the reason. The first
// reason stays.
func (w *writer) stop(reason string) error {
	err := fmt.Errorf("%w: %s, so nothing more is written until the service is started again",
		store.ErrUnavailable, reason)
	w.stopped.CompareAndSwap(nil, &err)
	return w.stopReason()
}

// stopReason returns why the writer was stopped, or nil.
func (w *writer) stopReason() error { return load(&w.stopped) }

// record keeps for check whether the last write could be made. Errors about the request, such as
// plant.ErrNotFound, do not count as failures.
func (w *writer) record(err error) {
	if errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknown) {
		w.failure.Store(&err)
	} else {
		w.failure.Store(nil)
	}
}

// lastFailure returns why the writer was stopped, or why the last write failed, or nil.
func (w *writer) lastFailure() error { return cmp.Or(w.stopReason(), load(&w.failure)) }

func load(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
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
	if failure == nil && !names(w.files.path, w.files.file) {
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
	go func() { probed <- w.probe(failure != nil || isFull(w.files.target)) }()
	select {
	case err := <-probed:
		return err
	case <-time.After(wait):
		return cmp.Or(failure, slow(slowWrite))
	case <-ctx.Done():
		return cmp.Or(failure, ctx.Err())
	}
}

// isFull reports whether the disk of a file has less than minSpace left.
func isFull(path string) bool {
	free := freeBytes(path)
	return free >= 0 && free < minSpace
}

// probe runs an empty transaction, which fails if the file is locked. With write, it also writes, so that a full disk
// and its recovery are detected while no client creates anything.
func (w *writer) probe(write bool) error {
	return w.tx(func() error {
		if !write {
			return nil
		}
		return w.rewriteVersion()
	})
}

// rewriteVersion writes a page without a change.
func (w *writer) rewriteVersion() error {
	version, err := number(w.conn, "PRAGMA user_version")
	if err != nil {
		return err
	}
	return exec(w.conn, fmt.Sprintf("PRAGMA user_version = %d", version))
}
