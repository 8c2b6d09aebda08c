package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"zombiezen.com/go/sqlite"
)

// pageSize is the size of the pages of a new file. A create with a random id writes at least one page of its own, to
// the WAL and to the file.
const pageSize = 2048

const (
	checkPause = 5 * time.Millisecond // between a commit and the check whether a checkpoint is due
	stepBytes  = 2 << 20              // in the WAL and not copied: larger steps make the slowest commits slower
	walLimit   = 16 << 20             // from this size on, the WAL is made to restart from its beginning
	maxWAL     = 4 * walLimit         // from this size on, commits wait for the copy
	restBytes  = 256 << 10            // the copy is repeated until it copies no more, and commits wait for the next one

	restartWait    = 20 * time.Millisecond // for readers, for each walLimit in the WAL
	maxRestartWait = 100 * time.Millisecond
	restartPause   = 5 * time.Second // after a wait that did not help
)

// checkpointer copies the WAL into the file. SQLite would do so by itself, but inside a commit, and would not report it
// when the sync of the file fails. What is committed is safe in the WAL either way.
type checkpointer struct {
	conn   *sqlite.Conn
	file   *os.File // the database, to sync it
	index  *os.File // of the WAL; see resetCopied
	wake   chan struct{}
	quit   chan struct{} // closed by writer.close
	ended  chan struct{} // closed at the end of run
	tried  int64         // pages in the WAL when the last checkpoint began
	waited time.Time     // when restart last waited for readers that did not end
}

// startCheckpointer opens the connection and starts the goroutine.
func (w *writer) startCheckpointer(beside bool) error {
	conn, err := openConn(w.files.target)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(w.files.target, os.O_RDWR, 0)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	w.checkpointer = &checkpointer{
		conn: conn, file: file, wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}),
	}
	if beside {
		log, err := w.checkpointer.checkpoint("NOOP")
		if err != nil {
			return err
		}
		w.checkpointer.tried = log.pages
	}
	go w.checkpointer.run(w)
	return nil
}

// run makes checkpoints until quit is closed.
func (c *checkpointer) run(w *writer) {
	defer close(c.ended)
	for {
		select {
		case <-c.wake:
		case <-c.quit:
			return
		}
		select {
		case <-time.After(checkPause):
		case <-c.quit:
			return
		}
		if c.due(w.pageSize) {
			c.make(w)
		}
	}
}

// due reports whether enough was written since the last checkpoint, which readers may have kept from copying it all.
func (c *checkpointer) due(pageSize int64) bool {
	log, err := c.checkpoint("NOOP")
	if log.pages < c.tried { // the WAL has restarted
		c.tried = 0
	}
	if err == nil && (log.pages-max(log.copied, c.tried))*pageSize < stepBytes {
		return false
	}
	c.tried = log.pages
	return true
}

// make makes a checkpoint.
func (c *checkpointer) make(w *writer) {
	start := time.Now()
	err := c.copyAndRestart(w)
	took := time.Since(start)
	c.handle(w, err)
	w.readSizes()
	if observe := w.observeCheckpoint.Load(); observe != nil {
		(*observe)(took, err)
	}
}

// end ends run, and waits for a checkpoint that is being made.
func (c *checkpointer) end() {
	select {
	case <-c.quit:
	default:
		close(c.quit)
	}
	<-c.ended
}

// handle stops the writer after an error that may have lost pages. After any other, the WAL is kept, and the next
// checkpoint tries again.
func (c *checkpointer) handle(w *writer, err error) {
	code := sqlite.ErrCode(err)
	switch code.ToPrimary() {
	case sqlite.ResultOK, sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultFull:
		return
	}
	if code == sqlite.ResultIOErrWrite {
		return
	}
	w.stop(fmt.Sprintf("a checkpoint failed (%v)", describe(err)))
	if code == sqlite.ResultIOErrFsync {
		c.index, _ = resetCopied(w.files.target) // the next process that settles the WAL does so too
	}
}

// copyAndRestart copies the WAL while commits go on. If the WAL is large, it then copies the rest while no commit runs,
// so that the WAL can restart.
func (c *checkpointer) copyAndRestart(w *writer) error {
	for before := int64(0); ; {
		if !w.mayCheckpoint() {
			return nil
		}
		log, err := c.copyAndSync()
		if err != nil || log.pages*w.pageSize < walLimit {
			return err
		}
		if (log.copied-before)*w.pageSize <= restBytes || log.pages*w.pageSize > maxWAL {
			break
		}
		before = log.copied
	}
	select {
	case w.lock <- struct{}{}:
		defer func() { <-w.lock }()
	case <-c.quit:
		return nil
	}
	if !w.mayCheckpoint() {
		return nil
	}
	return c.restart(w.pageSize)
}

// mayCheckpoint reports whether the files are those that were opened, because the WAL may otherwise contain writes of
// other processes, and whether they can be written. It waits while the file system is frozen.
func (w *writer) mayCheckpoint() bool {
	return w.stopReason() == nil && w.files.missing() == "" && waitFrozen(w.files.target) == nil
}

// copyAndSync copies what is in the WAL while commits go on, and syncs the file. SQLite syncs it only when the whole
// WAL was copied. Without our sync, the last copy, for which commits wait, would have to write everything.
func (c *checkpointer) copyAndSync() (walState, error) {
	log, err := c.checkpoint("PASSIVE")
	if err != nil {
		return log, err
	}
	if err := syncData(c.file); err != nil {
		return log, fmt.Errorf("%w: %w", sqlite.ResultIOErrFsync.ToError(), err)
	}
	return log, nil
}

// restart copies the rest of the WAL while no commit runs. The next commit then writes to the beginning of the WAL if
// no reader uses it. So restart waits for readers, the longer the larger the WAL is. If they do not end, as during a
// backup, it waits again after restartPause.
//
// It need not sync what it copies. A WAL restarts only when all of it is copied, and the checkpoint that copies the
// last page syncs the whole file before that page counts as copied.
func (c *checkpointer) restart(pageSize int64) error {
	log, err := c.checkpoint("PASSIVE")
	if err != nil || time.Since(c.waited) < restartPause {
		return err
	}
	c.conn.SetBusyTimeout(min(restartWait*time.Duration(log.pages*pageSize/walLimit), maxRestartWait))
	if log, err = c.checkpoint("RESTART"); log.busy {
		c.waited = time.Now()
	}
	return err
}

// walState is the state of the WAL after a checkpoint.
type walState struct {
	pages, copied int64
	busy          bool // readers, or another process, kept the checkpoint from completing
}

func (c *checkpointer) checkpoint(mode string) (walState, error) { return checkpoint(c.conn, mode) }

func checkpoint(conn *sqlite.Conn, mode string) (log walState, err error) {
	for row, err := range query(conn, "PRAGMA wal_checkpoint("+mode+")") {
		if err != nil {
			return walState{}, err
		}
		log = walState{busy: row.ColumnBool(0), pages: row.ColumnInt64(1), copied: row.ColumnInt64(2)}
	}
	return log, nil
}

// resetCopied makes the next checkpoint copy the whole WAL again. Pages that were copied before a sync failed may not
// be on the disk, and the index of the WAL, which processes share, counts them as copied: another process would drop
// them from the WAL. SQLite creates the index anew only when no process has it open.
//
// The index that it returns, if there is one, must stay open while this process has connections: closing it releases
// all their locks.
func resetCopied(target string) (index *os.File, err error) {
	// https://sqlite.org/walformat.html#the_wal_index_file_format: nBackfill
	const offset, length = 96, 4
	index, err = os.OpenFile(target+shmSuffix, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, withoutPath(err)
	}
	copied := make([]byte, length)
	_, err = index.ReadAt(copied, offset)
	switch {
	case errors.Is(err, io.EOF): // another process is creating it
		return index, nil
	case err == nil && bytes.Equal(copied, make([]byte, length)):
		return index, nil
	}
	_, err = index.WriteAt(make([]byte, length), offset)
	return index, withoutPath(err)
}
