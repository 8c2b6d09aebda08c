package sqlite

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"plantstore/internal/store"
)

// writer is the one connection that changes the file.
//
// After a commit that may or may not be on disk (a failed fsync), it never writes again:
// the kernel may have dropped the pages, and a second fsync would lie.
type writer struct {
	path   string
	file   os.FileInfo               // of the database when it was opened
	health atomic.Pointer[state]     // what is known of the last write
	begun  atomic.Pointer[time.Time] // when the write under way began; nil while there is none

	editing chan struct{} // holds a token while somebody changes a plant, or waits to
	turn    chan struct{} // holds a token while somebody writes; guards what follows
	*connection
	looked time.Time // when the file was last seen in its place
	logged int       // pages in the log since it was last copied into the file, more or less
	broken bool
}

// state is why the last write failed. Err is nil after a success.
type state struct{ err error }

const (
	patience  = 5 * time.Second  // for other writers of this process; of other processes the driver waits as long
	confirm   = 10 * time.Second // for the disk, before a change is called unknown; creates have commit.Options.Timeout
	tooLong   = 2 * time.Second  // for a write, after which readiness says that the disk hangs
	lookEvery = 100 * time.Millisecond
	maxLog    = 4000 // pages in the log after which it is copied into the file
)

func openWriter(path string) (*writer, error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, plainly(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		forget(path + suffix)
	}
	conn, err := connect(path, settings)
	if err != nil {
		return nil, translate(err)
	}
	w := &writer{path: path, file: file, turn: make(chan struct{}, 1), editing: make(chan struct{}, 1), connection: conn}
	w.health.Store(&state{})
	err = w.migrate()
	if log, err := os.Stat(path + "-wal"); err == nil { // a process that was killed has left it
		w.logged = int(log.Size() / pageSize)
	}
	if err == nil {
		if err = syncLog(path); err != nil {
			w.stop("a sync failed")
		}
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// tx runs do inside a transaction that holds the write lock, and commits. When it returns nil,
// what do changed is on disk.
func (w *writer) tx(do func() error) (err error) {
	if err := wait(w.turn, patience); err != nil {
		return err
	}
	defer func() { <-w.turn }()
	defer w.note(&err)
	if w.broken {
		return w.health.Load().err
	}
	now := time.Now()
	w.begun.Store(&now)
	defer w.begun.Store(nil)
	if now.Sub(w.looked) > lookEvery {
		w.looked = now
		if err := w.look(); err != nil {
			return err
		}
	}
	defer func() {
		if r := recover(); r != nil { // nobody knows what is half done
			w.stop("a write panicked")
			err = fmt.Errorf("%w: panic in a write: %v\n%s", store.ErrUnknown, r, debug.Stack())
		}
	}()
	return w.commit(do)
}

// edit is tx for a caller that waits for the disk no longer than confirm. Each edit is a commit of its own, so
// they take their turns among themselves first: a batch of creates waits for one of them, not for all.
func (w *writer) edit(do func() error) error {
	done := make(chan error, 1)
	go func() {
		if err := wait(w.editing, patience-time.Second); err != nil { // both waits together end before confirm
			done <- err
			return
		}
		defer func() { <-w.editing }()
		done <- w.tx(do)
	}()
	late := time.NewTimer(confirm)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return fmt.Errorf("%w: the disk did not confirm in time", store.ErrUnknown)
	}
}

const removed = "its file was removed or replaced"

// look is why nothing can be written, without a write.
func (w *writer) look() error {
	if !w.inPlace() {
		return w.stop(removed)
	}
	// Removing a folder that is not there needs a file system that can be written. On one that is
	// frozen it waits, as a system call does. SQLite would wait inside a page fault of the log's index, where
	// Go can't stop the thread to collect garbage: the whole process would hang with it.
	if err := syscall.Rmdir(w.path + "-none"); errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return nil
}

func (w *writer) inPlace() bool {
	now, err := os.Stat(w.path)
	return err == nil && os.SameFile(w.file, now)
}

// wait takes a turn.
func wait(turn chan struct{}, patience time.Duration) error {
	select {
	case turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case turn <- struct{}{}:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%w: other writes take too long", store.ErrBusy)
	}
}

func (w *writer) commit(do func() error) error {
	if _, err := w.exec("BEGIN IMMEDIATE"); err != nil {
		return translate(err)
	}
	if err := do(); err != nil {
		w.rollback()
		if isSync(err) { // a large batch begins the log before COMMIT
			w.stop(fmt.Sprintf("a write failed (%v)", inWords(err)))
		}
		return translate(err)
	}
	if _, err := w.exec("COMMIT"); err != nil {
		return w.commitFailed(err)
	}
	w.logged += 1 + w.kept/pageSize
	w.kept = 0
	if w.logged >= maxLog {
		w.checkpoint()
	}
	w.mark()
	return nil
}

// mark reads, so that the index of the log has a mark for readers of what was just committed. Otherwise
// the next reader sets it, and on a file system that has been frozen since it would hang: see look.
func (w *writer) mark() { w.row("PRAGMA user_version") }

// commitFailed says what a failed COMMIT means. The record that makes a transaction count is written
// last and then synced, so a write that failed, for want of space or another reason, has left none.
func (w *writer) commitFailed(err error) error {
	w.rollback()
	switch code := codeOf(err); {
	case code == sqlite3.SQLITE_BUSY, code == sqlite3.SQLITE_FULL, isWrite(err):
		w.looked = time.Time{} // the next write may find better words for it
		return translate(err)
	case isIndex(err): // the log is written and synced, and its index could not grow
	default:
		w.stop(fmt.Sprintf("a commit failed (%v)", inWords(err)))
	}
	return fmt.Errorf("commit: %w: %w", store.ErrUnknown, inWords(err))
}

// checkpoint copies the log into the file. SQLite would do so by itself, and not tell when the sync
// of the file fails. What has just been committed is safe in the log either way.
//
// The log starts over when nobody reads from it. Where there is always somebody, they are waited for, a moment,
// while nothing is written.
func (w *writer) checkpoint() {
	w.logged = 0
	status, err := w.row("PRAGMA wal_checkpoint(PASSIVE)")
	if err == nil && len(status) == 3 && status[1].(int64) > 2*maxLog {
		w.row("PRAGMA busy_timeout(100)")
		_, err = w.row("PRAGMA wal_checkpoint(RESTART)")
		w.row("PRAGMA " + settings[0])
	}
	switch code := codeOf(err); {
	case err == nil, code == sqlite3.SQLITE_BUSY, code == sqlite3.SQLITE_LOCKED, code == sqlite3.SQLITE_FULL, isWrite(err): // the log keeps it, and the next one tries again
	default:
		w.stop(fmt.Sprintf("a checkpoint failed (%v)", inWords(err)))
	}
}

// rollback ends a transaction if SQLite has not ended it by itself.
func (w *writer) rollback() {
	if _, err := w.exec("ROLLBACK"); err != nil && codeOf(err) != sqlite3.SQLITE_ERROR {
		w.stop(fmt.Sprintf("a rollback failed (%v)", inWords(err)))
	}
}

// stop makes this the last write.
func (w *writer) stop(why string) error {
	w.broken = true
	err := fmt.Errorf("%w: %s, so nothing more is written until the service is started again", store.ErrUnavailable, why)
	w.health.Store(&state{err})
	return err
}

// note keeps whether the last write could be done, for check.
func (w *writer) note(err *error) {
	switch {
	case w.broken:
	case errors.Is(*err, store.ErrFull), errors.Is(*err, store.ErrUnavailable), errors.Is(*err, store.ErrUnknown):
		w.health.Store(&state{*err})
	case w.health.Load().err != nil:
		w.health.Store(&state{})
	}
}

// check is why a write would fail now, as far as the last one tells. Behind the caller's back it
// begins one, and after a failure also writes, so that the next check knows more.
func (w *writer) check() error {
	err := w.health.Load().err
	if err == nil && !w.inPlace() {
		return fmt.Errorf("%w: %s", store.ErrUnavailable, removed)
	}
	if begun := w.begun.Load(); err == nil && begun != nil && time.Since(*begun) > tooLong {
		return fmt.Errorf("%w: a write has waited %d s for the disk", store.ErrUnavailable, time.Since(*begun)/time.Second)
	}
	if len(w.turn) == 0 {
		go w.tx(func() error {
			if err == nil {
				return nil
			}
			version, err := w.number("PRAGMA user_version")
			if err == nil {
				_, err = w.exec(fmt.Sprintf("PRAGMA user_version = %d", version))
			}
			return err
		})
	}
	return err
}

func (w *writer) close() error {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	if w.broken {
		return nil // the last connection to go would sync: the end of the process closes it as it is
	}
	w.broken = true
	w.health.Store(&state{fmt.Errorf("%w: it was closed", store.ErrUnavailable)})
	return w.connection.close()
}
