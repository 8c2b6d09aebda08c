package sqlite

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"
)

// pageSize is the size of the pages of a new file. A create with a random id writes at least one page of its own, to
// the WAL and to the file.
const pageSize = 2048

const (
	checkPause = 5 * time.Millisecond // between a commit and the check whether a checkpoint is due
	stepPages  = 2 << 20 / pageSize   // in the WAL and not copied: larger steps make the slowest commits slower
	walLimit   = 16 << 20 / pageSize  // from this size on, the WAL is made to restart from its beginning
	maxWAL     = 4 * walLimit         // from this size on, commits wait for the copy
	restPages  = 256 << 10 / pageSize // the copy is repeated until it copies no more, and commits wait for the next one

	restartWait  = 50 * time.Millisecond // for readers, while commits wait too
	restartPause = 5 * time.Second       // after a wait that did not help
)

// checkpointer copies the WAL into the file. SQLite would do so by itself, but inside a commit, and would not report it
// when the sync of the file fails. What is committed is safe in the WAL either way.
type checkpointer struct {
	conn   *sqlite.Conn
	wake   chan struct{}
	quit   context.Context
	cancel context.CancelFunc // ends quit
	ended  chan struct{}      // closed at the end of run
	tried  int64              // pages in the WAL when the last checkpoint began
	copied int64              // of them, when it ended
	waited time.Time          // when commits last waited in vain for readers to end
}

func (w *writer) startCheckpointer() error {
	conn, err := openWritable(w.files.target)
	if err != nil {
		return err
	}
	conn.SetBusyTimeout(restartWait)
	c := &checkpointer{conn: conn, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	c.quit, c.cancel = context.WithCancel(context.Background())
	w.checkpointer = c
	go c.run(w)
	return nil
}

func (c *checkpointer) run(w *writer) {
	defer close(c.ended)
	for {
		select {
		case <-c.wake:
		case <-c.quit.Done():
			return
		}
		time.Sleep(checkPause)
		if c.due() {
			c.make(w)
		}
	}
}

// due reports whether enough was written since the last checkpoint. Readers may have kept that checkpoint from copying
// the whole WAL, so due counts from the size that the WAL had then.
func (c *checkpointer) due() bool {
	pages, copied, err := checkpoint(c.conn, "NOOP")
	if pages < c.tried { // the WAL has restarted
		c.tried = 0
	}
	if err == nil && pages-max(copied, c.tried) < stepPages {
		return false
	}
	c.tried = pages
	return true
}

// make makes a checkpoint. After a failure that the next one may repeat, the WAL is kept.
func (c *checkpointer) make(w *writer) {
	start := time.Now()
	err := c.copyAndRestart(w)
	took := time.Since(start)
	if !mayRetry(err) {
		w.stop(fmt.Sprintf("a checkpoint failed (%v)", describe(err)))
		w.resetCopied() // if it fails, the next process that settles the WAL does so
	}
	if observe := w.observeCheckpoint.Load(); observe != nil {
		(*observe)(took, err)
	}
}

// end ends run, and waits for a checkpoint that is being made.
func (c *checkpointer) end() {
	c.cancel()
	<-c.ended
}

// copyAndRestart copies the WAL while commits go on. If the WAL is large, it then copies the rest while no commit runs,
// and waits for readers, so that the next commit writes to the beginning of the WAL. It does not wait for a reader that
// has kept it from copying anything since the last checkpoint, such as a backup.
func (c *checkpointer) copyAndRestart(w *writer) error {
	for start := c.copied; ; {
		if w.checkWritable() != nil {
			return nil
		}
		pages, copied, err := checkpoint(c.conn, "PASSIVE")
		if err != nil {
			return err
		}
		// SQLite syncs the file only when the whole WAL was copied. Without this sync, the last copy, for which commits
		// wait, would have to write everything.
		if err := w.file.Sync(); err != nil {
			return fmt.Errorf("%w: %w", sqlite.ResultIOErrFsync.ToError(), err)
		}
		more := copied - c.copied
		c.copied = copied
		if pages < walLimit || copied == start && copied < pages {
			return nil
		}
		if more <= restPages || pages > maxWAL {
			break
		}
	}
	select {
	case w.lock <- struct{}{}:
		defer func() { <-w.lock }()
	case <-c.quit.Done():
		return nil
	}
	if w.checkWritable() != nil {
		return nil
	}
	// No sync follows. A WAL restarts only when all of it is copied, and the checkpoint that copies the last page syncs
	// the whole file before that page counts as copied.
	mode := "RESTART"
	if time.Since(c.waited) < restartPause {
		mode = "PASSIVE" // the next commit restarts the WAL if no reader uses it
	}
	start := time.Now()
	_, copied, err := checkpoint(c.conn, mode)
	if c.copied = copied; mode == "RESTART" && time.Since(start) > restartWait {
		c.waited = time.Now()
	}
	return err
}

// checkpoint returns the number of pages in the WAL after a checkpoint, and how many of them were copied.
func checkpoint(conn *sqlite.Conn, mode string) (pages, copied int64, err error) {
	for row, err := range query(conn, "PRAGMA wal_checkpoint("+mode+")") {
		if err != nil {
			return 0, 0, err
		}
		pages, copied = row.ColumnInt64(1), row.ColumnInt64(2)
	}
	return pages, copied, nil
}

// resetCopied makes the next checkpoint copy the whole WAL again. Pages that were copied before a sync failed may not
// be on the disk, and the index of the WAL, which processes share, counts them as copied: another process would drop
// them from the WAL. SQLite creates the index anew only when no process has it open.
func (w *writer) resetCopied() error {
	const nBackfill, size = 96, 4 // https://sqlite.org/walformat.html#the_wal_index_file_format
	_, err := w.index.WriteAt(make([]byte, size), nBackfill)
	return err
}
