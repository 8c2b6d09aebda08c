package sqlite

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/machine"
	"plantstore/internal/storage"
	"plantstore/internal/storage/tables"
)

// writer is the one connection that changes the file: this file has its transactions, checkpoint.go the copying
// of the WAL into the file in the background, health.go what is known about whether writes succeed.
//
// After a commit that may or may not be on disk (a failed fsync), it never writes again: the kernel may have
// dropped the pages, so that a second fsync would succeed without them. See stop and settle.
type writer struct {
	files    files
	damage   *storage.Damage
	from, to int // see Storage.Migrated

	stopped atomic.Pointer[error] // why nothing more is written; it is never cleared

	observeCheckpoint atomic.Pointer[func(took time.Duration, err error)]

	lock         chan struct{} // contains an element while a write is in flight; guards the fields below
	conn         *sqlite.Conn
	settled      bool          // see settle
	failed       bool          // the last write, and none has succeeded since
	file, index  *os.File      // the database and the index of the WAL; closing one releases all locks on it
	checked      time.Time     // when checkWritable last ran
	checkpointer *checkpointer // nil while the database is being opened, and in a command beside a service
}

const lockTimeout = 5 * time.Second // for other writes of this process; busyTimeout is for other processes

// newWriter returns a writer of an existing file, without a connection: see open.
func newWriter(path string, damage *storage.Damage) (*writer, error) {
	target, file, err := findFile(path)
	f := files{path: path, target: target, file: file}
	return &writer{files: f, damage: damage, lock: make(chan struct{}, 1)}, err
}

// open opens the connection. A command beside another process leaves it to that process to settle the WAL and to copy
// it into the file.
func (w *writer) open(command, keepSchema bool) (err error) {
	beside := command && inUse(w.files.target)
	if w.conn, err = openWritable(w.files.target); err != nil {
		return translate(err)
	}
	if err := w.migrate(keepSchema); err != nil {
		return err
	}
	if err := w.openFiles(); err != nil {
		return err
	}
	if w.settled = beside; beside {
		return nil
	}
	err = w.settle()
	if w.record(err); err != nil && !errors.Is(err, storage.ErrFull) { // full: reads are served, and each write settles
		return err
	}
	return translate(w.startCheckpointer())
}

// openFiles opens the files that SQLite has open, for what it can't do. SQLite ignores it when the directory entry of a
// new WAL can't be synced: a power cut would remove the WAL with all commits, or a new database.
func (w *writer) openFiles() (err error) {
	if w.file, err = os.OpenFile(w.files.target, os.O_RDWR, 0); err != nil {
		return err
	}
	if w.index, err = os.OpenFile(w.files.target+shmSuffix, os.O_RDWR, 0); err != nil {
		return err
	}
	if w.files.shm, err = w.index.Stat(); err != nil {
		return err
	}
	if w.files.wal, err = os.Stat(w.files.target + walSuffix); err != nil {
		return err
	}
	return machine.SyncFolder(w.files.target)
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
	if err := w.resetCopied(); err != nil {
		return fmt.Errorf("%w: reset the index of its WAL: %w", storage.ErrUnavailable, withoutPath(err))
	}
	if _, _, err = checkpoint(w.conn, "TRUNCATE"); !mayRetry(err) {
		w.stop(fmt.Sprintf("the WAL of an earlier process can't be copied (%v)", describe(err)))
	}
	w.settled = err == nil
	return translate(err)
}

// tx runs do in a transaction and commits. When it returns nil, the changes are on disk. An error means that
// nothing was stored, unless it is storage.ErrUnknown.
func (w *writer) tx(do func() error) (err error) {
	// Callers get the lock in the order in which they wait for it, so that creates and edits, each of which have one
	// batch in flight at most, take turns.
	select {
	case w.lock <- struct{}{}:
		defer func() { <-w.lock }()
	case <-time.After(lockTimeout):
		return fmt.Errorf("%w: other writes take too long", storage.ErrBusy)
	}
	if err := w.stopReason(); err != nil {
		return err
	}
	defer func() { w.record(err) }()
	if now := time.Now(); now.Sub(w.checked) > checkInterval {
		w.checked = now
		if err := w.checkWritable(); err != nil {
			return err
		}
	}
	defer func() {
		if r := recover(); r != nil { // what the transaction has done is unknown
			w.stop("a write panicked")
			err = fmt.Errorf("%w: panic in a write: %v\n%s", storage.ErrUnknown, r, debug.Stack())
		}
	}()
	if !w.settled {
		if err := w.settle(); err != nil {
			return err
		}
	}
	return w.commit(func() error {
		if err := do(); err != nil || !w.failed {
			return err
		}
		return w.rewriteVersion() // a transaction that writes nothing would not show that writes succeed again
	})
}

// execOne runs a statement, and returns errNone if it changed no row.
func (w *writer) execOne(errNone error, s tables.Statement) error {
	err := exec(w.conn, s.SQL, s.Args...)
	if err == nil && w.conn.Changes() == 0 {
		err = errNone
	}
	return err
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
		return fmt.Errorf("commit: %w: %s", storage.ErrUnknown, reason)
	}
	// The index of the WAL gets a read mark for this commit. Otherwise the next reader sets it, which writes to the
	// memory-mapped index: on a frozen file system that reader would hang. See checkWritable.
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
	switch {
	case mayRetry(err):
		w.checked = time.Time{} // the next write may find a more exact reason
		return translate(err)
	case slices.Contains(indexErrors, sqlite.ErrCode(err)): // the WAL is written and synced, but its index could not grow
	default:
		w.stop(fmt.Sprintf("a commit failed (%v)", describe(err)))
	}
	return fmt.Errorf("commit: %w: %w", storage.ErrUnknown, describe(err))
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
	if w == nil {
		return nil
	}
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
	for _, f := range []*os.File{w.file, w.index} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}
