package sqlite

import (
	"cmp"
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
// dropped the pages, so that a second fsync would succeed without them. See stop and dropPageCaches.
type writer struct {
	path   string      // as given by the operator
	target string      // the path without symbolic links: SQLite creates the WAL next to it
	file   os.FileInfo // the database file when it was opened
	damage *store.Damage

	command, keepSchema bool // see OpenCommand
	from, to            int  // see Store.Migrated

	failure atomic.Pointer[error]     // why the last write failed; nil after one that succeeded
	started atomic.Pointer[time.Time] // when the write in flight started; nil while there is none

	fileSize, walSize atomic.Int64 // when they were last checked
	needsRestart      atomic.Bool  // stop was called
	observeCheckpoint atomic.Pointer[func(took time.Duration, err error)]
	unusedFile        atomic.Pointer[os.File] // of a checkpointer that has ended; see Store.closeFile

	lock     chan struct{} // contains an element while a write is in flight; guards the fields below
	conn     *sqlite.Conn  // nil while the database is open for reading only
	connect  func() error  // opens conn; see Store.leaveReadOnly
	wal, shm os.FileInfo   // the WAL and its index when conn was opened
	checked  time.Time     // when checkWritable last ran
	walBytes int64         // appended to the WAL since a checkpoint was last started, approximately
	pageSize int64
	stopped  bool

	checkpointer *checkpointer // nil while conn is
	counts       counts
}

// writerCache has room for the inner pages of ten million plants, 5,600 KiB. Compared with the default of 2,000,
// creates with random ids are 0.9 % faster, and those with names of 32 KB 5 % slower.
const writerCache = "cache_size(-8000)" // KiB

const lockTimeout = 5 * time.Second // for other writes of this process; busyTimeout is for other processes

// prepareWriter returns a writer without a connection: see open.
func prepareWriter(path string, damage *store.Damage) (*writer, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	file, err := os.Stat(target)
	if err != nil {
		return nil, withoutPath(err)
	}
	return &writer{path: path, target: target, file: file, damage: damage, lock: make(chan struct{}, 1)}, nil
}

// open opens the connection.
func (w *writer) open() (err error) {
	beside := w.command && inUse(w.target)
	if !beside {
		dropPageCaches(w.target)
		index, err := resetCopied(w.target)
		if index != nil {
			index.Close()
		}
		if err != nil {
			return fmt.Errorf("reset the index of its WAL: %w", err)
		}
	}
	if w.conn, err = openConn(w.target, writerCache); err != nil {
		return translate(err)
	}
	if w.pageSize, err = number(w.conn, "PRAGMA page_size"); err == nil {
		err = w.migrate()
	}
	if err == nil {
		w.shm, err = os.Stat(w.target + shmSuffix)
	}
	if err == nil && !beside {
		err = w.syncWAL()
	}
	if err == nil {
		w.wal, err = os.Stat(w.target + walSuffix)
	}
	if err == nil {
		err = w.startCheckpointer()
	}
	if err != nil {
		return errors.Join(withoutPath(err), w.disconnect())
	}
	w.missingFile() // records the sizes
	if !beside {
		w.walBytes = w.wal.Size() // a killed process leaves its WAL
	}
	return nil
}

// syncWAL makes durable what an earlier process left in the WAL.
func (w *writer) syncWAL() error {
	err := syncWAL(w.target)
	if err != nil {
		w.stop("a sync failed")
	}
	return err
}

// disconnect closes the connections, except after a failed sync: closing the last one would sync again, while the end
// of the process closes it without a sync.
func (w *writer) disconnect() error {
	c := w.checkpointer
	if c != nil {
		if c.stop(); c.failure != "" {
			w.stop(c.failure)
		}
	}
	if w.stopped || w.conn == nil {
		return nil
	}
	var err error
	if c != nil {
		err = c.conn.Close() // first, so that the writer's is the last, and its Close reports a failure
	}
	err = errors.Join(err, w.conn.Close())
	if c != nil {
		w.unusedFile.Store(c.file)
	}
	w.conn, w.wal, w.shm, w.checkpointer = nil, nil, nil, nil
	return err
}

// tx runs do in a transaction and commits. When it returns nil, the changes are on disk. An error means that
// nothing was stored, unless it is store.ErrUnknown.
func (w *writer) tx(do func() error) (err error) {
	if err := acquire(w.lock, lockTimeout); err != nil {
		return err
	}
	defer func() { <-w.lock }()
	if w.stopped {
		return w.lastFailure()
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
	if w.conn == nil {
		return cmp.Or(w.lastFailure(), errReadOnly)
	}
	defer func() {
		if r := recover(); r != nil { // what the transaction has done is unknown
			w.stop("a write panicked")
			err = fmt.Errorf("%w: panic in a write: %v\n%s", store.ErrUnknown, r, debug.Stack())
		}
	}()
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
	if !w.sharesIndex() { // BEGIN may have waited for another process for seconds
		w.rollback()
		return w.stop(shmRemoved)
	}
	clear(w.counts.added)
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
	if reason := w.missingFile(); reason != "" {
		w.stop(reason)
		return fmt.Errorf("commit: %w: %s", store.ErrUnknown, reason)
	}
	w.counts.commit()
	w.countCommit()
	w.updateReadMark()
	return nil
}

// commitFailed returns what a failed COMMIT means. The record that makes a transaction valid is written last and
// then synced, so after a failed write, for lack of space or another reason, nothing is stored.
func (w *writer) commitFailed(err error) error {
	w.counts.clear() // what is stored may be unknown
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

func (w *writer) close() error {
	w.lock <- struct{}{}
	defer func() { <-w.lock }()
	if w.missingFile() == shmRemoved { // closing the last connection is a checkpoint
		w.stop(shmRemoved)
	}
	err := w.disconnect()
	if !w.stopped {
		w.stopped = true
		w.setFailure(errClosed)
	}
	return err
}
