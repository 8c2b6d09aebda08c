package sqlite

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"plantstore/internal/plant"
)

// writer is the one connection that changes the file.
//
// After a commit that may or may not be on disk (a failed fsync), it never writes again:
// the kernel may have dropped the pages, and a second fsync would lie.
type writer struct {
	path   string
	file   os.FileInfo           // of the database when it was opened
	health atomic.Pointer[state] // what is known of the last write

	turn        chan struct{} // holds a token while somebody writes; guards what follows
	*connection               // nil when closed
	looked      time.Time     // when the file was last seen in its place
	logged      int           // pages in the log since it was last copied into the file, more or less
	broken      bool
}

// state is why the last write failed. Err is nil after a success.
type state struct{ err error }

const (
	patience  = 5 * time.Second // for other writers of this process; of other processes the driver waits as long
	lookEvery = 100 * time.Millisecond
	maxLog    = 4000 // pages in the log after which it is copied into the file
)

func openWriter(path string) (*writer, error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, plainly(err)
	}
	conn, err := connect(path, settings)
	if err != nil {
		return nil, translate(err)
	}
	w := &writer{path: path, file: file, turn: make(chan struct{}, 1), connection: conn}
	w.health.Store(&state{})
	if err := w.migrate(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// tx runs do inside a transaction that holds the write lock, and commits. When it returns nil,
// what do changed is on disk.
func (w *writer) tx(do func() error) (err error) {
	if err := w.wait(); err != nil {
		return err
	}
	defer func() { <-w.turn }()
	defer w.note(&err)
	if w.broken {
		return w.health.Load().err
	}
	if now := time.Now(); now.Sub(w.looked) > lookEvery {
		if w.looked = now; !w.inPlace() {
			return w.stop(removed)
		}
	}
	done := false
	defer func() {
		if !done { // a panic: nobody knows what is half done
			w.stop("a write panicked")
		}
	}()
	err = w.commit(do)
	done = true
	return err
}

const removed = "its file was removed or replaced"

func (w *writer) inPlace() bool {
	now, err := os.Stat(w.path)
	return err == nil && os.SameFile(w.file, now)
}

// wait takes the turn to write.
func (w *writer) wait() error {
	select {
	case w.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%w: other writes take too long", plant.ErrBusy)
	}
}

func (w *writer) commit(do func() error) error {
	if _, err := w.exec("BEGIN IMMEDIATE"); err != nil {
		return translate(err)
	}
	if err := do(); err != nil {
		w.rollback()
		return translate(err)
	}
	if _, err := w.exec("COMMIT"); err != nil {
		return w.commitFailed(err)
	}
	if w.logged++; w.logged >= maxLog {
		return w.checkpoint()
	}
	return nil
}

// commitFailed says what a failed COMMIT means. The record that makes a transaction count is written
// last and then synced, so a write that found no space has left none.
func (w *writer) commitFailed(err error) error {
	w.rollback()
	switch code := codeOf(err); {
	case code == sqlite3.SQLITE_BUSY, code == sqlite3.SQLITE_FULL:
		return translate(err)
	case isIndex(err): // the log is written and synced, and its index could not grow
		return fmt.Errorf("commit: %w: %w", plant.ErrUnknown, err)
	default:
		w.stop(fmt.Sprintf("a commit failed (%v)", err))
		return fmt.Errorf("commit: %w: %w", plant.ErrUnknown, err)
	}
}

// checkpoint copies the log into the file. SQLite would do so by itself, and not tell when the sync
// of the file fails. What has just been committed is safe in the log either way.
func (w *writer) checkpoint() error {
	w.logged = 0
	if _, err := w.row("PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
		switch codeOf(err) {
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL:
		default:
			w.stop(fmt.Sprintf("a checkpoint failed (%v)", err))
		}
	}
	return nil
}

// rollback ends a transaction if SQLite has not ended it by itself.
func (w *writer) rollback() {
	if _, err := w.exec("ROLLBACK"); err != nil && codeOf(err) != sqlite3.SQLITE_ERROR {
		w.stop(fmt.Sprintf("a rollback failed (%v)", err))
	}
}

// stop makes this the last write.
func (w *writer) stop(why string) error {
	w.broken = true
	err := fmt.Errorf("%w: %s, so nothing more is written until the service is started again", plant.ErrUnavailable, why)
	w.health.Store(&state{err})
	return err
}

// note keeps whether the last write could be done, for check.
func (w *writer) note(err *error) {
	switch {
	case w.broken:
	case errors.Is(*err, plant.ErrFull), errors.Is(*err, plant.ErrUnavailable), errors.Is(*err, plant.ErrUnknown):
		w.health.Store(&state{*err})
	case w.health.Load().err != nil:
		w.health.Store(&state{})
	}
}

// check is why a write would fail now, as far as the last one tells. After a failure it writes,
// behind the caller's back, so that the next check knows more.
func (w *writer) check() error {
	err := w.health.Load().err
	if err == nil && !w.inPlace() {
		return fmt.Errorf("%w: %s", plant.ErrUnavailable, removed)
	}
	if err != nil && len(w.turn) == 0 {
		go w.tx(func() error {
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
	w.broken = true
	w.health.Store(&state{fmt.Errorf("%w: it was closed", plant.ErrUnavailable)})
	return w.connection.close()
}
