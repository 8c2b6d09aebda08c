package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/store"
)

// writer is the one connection that changes the file: this file has its transactions, checkpoint.go the copying
// of the WAL into the file in the background, health.go what is known about whether writes succeed.
//
// After a commit that may or may not be on disk (a failed fsync), it never writes again: the kernel may have
// dropped the pages, so that a second fsync would succeed without them. See stop and settle.
type writer struct {
	files    files
	damage   *store.Damage
	from, to int // see Store.Migrated

	stopped atomic.Pointer[error]     // why nothing more is written; it is never cleared
	failure atomic.Pointer[error]     // why the last write failed; nil after one that succeeded
	started atomic.Pointer[time.Time] // when the write in flight started; nil while there is none

	fileSize, walSize atomic.Int64 // when they were last read
	observeCheckpoint atomic.Pointer[func(took time.Duration, err error)]

	lock         chan struct{} // contains an element while a write is in flight; guards the fields below
	conn         *sqlite.Conn
	settled      bool      // see settle
	index        *os.File  // see resetCopied
	checked      time.Time // when checkWritable last ran
	pageSize     int64
	checkpointer *checkpointer // nil while the database is being opened
}

// writerCache has room for the inner pages of ten million plants, 5,600 KiB.
const writerCache = "cache_size(-8000)" // KiB

const lockTimeout = 5 * time.Second // for other writes of this process; busyTimeout is for other processes

// newWriter returns a writer without a connection: see open.
func newWriter(path string, damage *store.Damage) (*writer, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	file, err := os.Stat(target)
	if err != nil {
		return nil, withoutPath(err)
	}
	f := files{path: path, target: target, file: file}
	return &writer{files: f, damage: damage, lock: make(chan struct{}, 1)}, nil
}

// open opens the connection. A command beside another process leaves it to that process to settle the WAL, and copies
// only what it adds to it.
func (w *writer) open(command, keepSchema bool) (err error) {
	beside := command && inUse(w.files.target)
	w.settled = beside
	if w.conn, err = openConn(w.files.target, writerCache); err != nil {
		return translate(err)
	}
	if w.pageSize, err = number(w.conn, "PRAGMA page_size"); err != nil {
		return translate(err)
	}
	if err := w.migrate(keepSchema); err != nil {
		return err
	}
	if !w.settled {
		if err := w.settle(); err != nil && !errors.Is(err, store.ErrFull) {
			return err
		} else if err != nil {
			w.failure.Store(&err) // reads are served, and each write settles first
		}
	}
	if w.files.shm, err = os.Stat(w.files.target + shmSuffix); err != nil {
		return withoutPath(err)
	}
	if w.files.wal, err = os.Stat(w.files.target + walSuffix); err != nil {
		return withoutPath(err)
	}
	w.readSizes()
	return translate(w.startCheckpointer(beside))
}

// settle makes durable what an earlier process left in the WAL. Nothing else is written before.
//
// If that process was killed, the WAL may contain plants that were written and not synced. They are visible, so
// creating one again returns Same, which promises that it is on disk. The commit syncs them.
//
// If a sync failed, Linux keeps the written pages in memory and marks them clean although the disk does not have them.
// Another fsync succeeds without writing them, and a commit behind them would be lost with them. The checkpoint writes
// everything that is in the WAL to the file and empties the WAL. Writing the WAL again in place would not do: ext4 may
// keep its new blocks as unwritten. Only readers of another process can prevent the checkpoint.
func (w *writer) settle() (err error) {
	if err := w.commit(w.rewriteVersion); err != nil {
		return err
	}
	if w.index == nil {
		if w.index, err = resetCopied(w.files.target); err != nil {
			return fmt.Errorf("%w: reset the index of its WAL: %w", store.ErrUnavailable, err)
		}
	}
	_, err = checkpoint(w.conn, "TRUNCATE")
	switch code := sqlite.ErrCode(err); {
	case err == nil, code.ToPrimary() == sqlite.ResultBusy, code.ToPrimary() == sqlite.ResultLocked:
		w.settled = true
		return nil
	case code == sqlite.ResultIOErrWrite, code.ToPrimary() == sqlite.ResultFull:
	default:
		w.stop(fmt.Sprintf("the WAL of an earlier process can't be copied (%v)", describe(err)))
	}
	return translate(err)
}

// tx runs do in a transaction and commits. When it returns nil, the changes are on disk. An error means that
// nothing was stored, unless it is store.ErrUnknown.
func (w *writer) tx(do func() error) (err error) {
	if err := acquire(w.lock, lockTimeout); err != nil {
		return err
	}
	defer func() { <-w.lock }()
	if err := w.stopReason(); err != nil {
		return err
	}
	defer func() { w.record(err) }()
	now := time.Now()
	w.started.Store(&now)
	defer w.started.Store(nil)
	if now.Sub(w.checked) > checkInterval {
		w.checked = now
		if err := w.checkWritable(); err != nil {
			return err
		}
	}
	defer func() {
		if r := recover(); r != nil { // what the transaction has done is unknown
			w.stop("a write panicked")
			err = fmt.Errorf("%w: panic in a write: %v\n%s", store.ErrUnknown, r, debug.Stack())
		}
	}()
	if !w.settled {
		if err := w.settle(); err != nil {
			return err
		}
	}
	return w.commit(do)
}

// acquire takes a lock, or returns store.ErrBusy. Callers get the lock in the order in which they wait for it, so that
// creates and edits, each of which have one batch in flight at most, take turns.
func acquire(lock chan struct{}, timeout time.Duration) error {
	select {
	case lock <- struct{}{}:
		return nil
	default:
	}
	select {
	case lock <- struct{}{}:
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("%w: other writes take too long", store.ErrBusy)
	}
}

func (w *writer) commit(do func() error) error {
	if err := exec(w.conn, "BEGIN IMMEDIATE"); err != nil {
		return w.damage.Record(translate(err))
	}
	if !w.files.sharesIndex() { // BEGIN may have waited for another process for seconds
		w.rollback()
		return w.stop(shmRemoved)
	}
	if err := do(); err != nil {
		w.rollback()
		if sqlite.ErrCode(err) == sqlite.ResultIOErrFsync { // a large batch starts the WAL before COMMIT
			w.stop(fmt.Sprintf("a write failed (%v)", describe(err)))
		}
		return w.damage.Record(translate(err))
	}
	if err := exec(w.conn, "COMMIT"); err != nil {
		return w.commitFailed(err)
	}
	// A restart may not find the file with the commit, and a checkpoint may copy what another process has written to
	// the WAL.
	if reason := w.files.missing(); reason != "" {
		w.stop(reason)
		return fmt.Errorf("commit: %w: %s", store.ErrUnknown, reason)
	}
	// The index of the WAL gets a read mark for this commit. Otherwise the next reader sets it, which writes to the
	// memory-mapped index: on a frozen file system that reader would hang. See waitFrozen.
	exec(w.conn, "PRAGMA user_version")
	if w.checkpointer != nil {
		select {
		case w.checkpointer.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// commitFailed returns what a failed COMMIT means. The record that makes a transaction valid is written last and
// then synced, so after a failed write, for lack of space or another reason, nothing is stored.
func (w *writer) commitFailed(err error) error {
	w.rollback()
	w.damage.Record(translate(err))
	switch code := sqlite.ErrCode(err); {
	case code == sqlite.ResultIOErrWrite, code.ToPrimary() == sqlite.ResultBusy, code.ToPrimary() == sqlite.ResultFull:
		w.checked = time.Time{} // the next write may find a more exact reason
		return translate(err)
	case isSharedMemory(code): // the WAL is written and synced, but its index could not grow
	default:
		w.stop(fmt.Sprintf("a commit failed (%v)", describe(err)))
	}
	return fmt.Errorf("commit: %w: %w", store.ErrUnknown, describe(err))
}

// isSharedMemory reports whether a code is about the shared memory that indexes the WAL.
func isSharedMemory(code sqlite.ResultCode) bool {
	switch code {
	case sqlite.ResultIOErrSHMOpen, sqlite.ResultIOErrSHMSize, sqlite.ResultIOErrSHMLock, sqlite.ResultIOErrSHMMap,
		resultIOErrInPage:
		return true
	}
	return false
}

// rollback ends the transaction unless SQLite has rolled it back itself.
func (w *writer) rollback() {
	if w.conn.AutocommitEnabled() {
		return
	}
	if err := exec(w.conn, "ROLLBACK"); err != nil {
		w.stop(fmt.Sprintf("a rollback failed (%v)", describe(err)))
	}
}

// close closes the connections. After a failed sync it does not: closing the last one would sync again, while the end
// of the process closes it without a sync.
func (w *writer) close() error {
	w.lock <- struct{}{}
	defer func() { <-w.lock }()
	c := w.checkpointer
	if c != nil {
		c.end()
	}
	if reason := w.files.missing(); w.conn != nil && reason != "" { // closing the last connection is a checkpoint
		w.stop(reason)
	}
	if !w.stopped.CompareAndSwap(nil, &errClosed) || w.conn == nil {
		return nil
	}
	var err error
	if c != nil {
		err = c.conn.Close() // first, so that the writer's is the last, and its Close reports a failure
	}
	err = errors.Join(err, w.conn.Close())
	if c != nil {
		err = errors.Join(err, c.file.Close())
	}
	if w.index != nil {
		err = errors.Join(err, w.index.Close())
	}
	return err
}
