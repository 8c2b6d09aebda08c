package sqlite

import (
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
)

const (
	pageSize = 4096
	// maxWALBytes is how much is counted between two checkpoints. Split pages and text that does not fill its last
	// page are not counted, so that the WAL can grow to three times that.
	maxWALBytes  = 4000 * pageSize
	restartWait  = 100 * time.Millisecond
	restartPause = 5 * time.Second // after a wait that did not help
	restartPages = 2 * maxWALBytes / pageSize
)

// countBytes adds what a written plant appends to the WAL, approximately: the page of its key, and its text.
func (w *writer) countBytes(p plant.Plant) { w.walBytes += int64(pageSize + p.Size()) }

// checkpoint copies the WAL into the file. SQLite would do so by itself, but would not report it when the sync of
// the file fails. What has just been committed is safe in the WAL either way.
//
// The WAL restarts from its beginning when no reader uses it. If readers always do, and it has grown to
// restartPages, checkpoint waits for them for restartWait, during which nothing is written. If they did not
// end, as during a backup, it waits again after restartPause.
func (w *writer) checkpoint() {
	w.walBytes = 0
	pages, start := 0, time.Now()
	_, err := w.copyWAL("PASSIVE", &pages)
	if err == nil && pages > restartPages && time.Since(w.waited) > restartPause {
		var busy bool
		w.conn.SetBusyTimeout(restartWait)
		if busy, err = w.copyWAL("RESTART", &pages); busy {
			w.waited = time.Now()
		}
		w.conn.SetBusyTimeout(busyTimeout)
	}
	if observe := w.observeCheckpoint.Load(); observe != nil {
		(*observe)(time.Since(start), err)
	}
	code := sqlite.ErrCode(err)
	switch code.ToPrimary() {
	case sqlite.ResultOK:
	case sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultFull: // the WAL is kept, and the next checkpoint tries again
	default:
		if code != sqlite.ResultIOErrWrite { // kept as well
			w.stop(fmt.Sprintf("a checkpoint failed (%v)", describe(err)))
		}
	}
}

// copyWAL runs a checkpoint, sets pages to the size of the WAL, and reports whether readers kept it from completing.
func (w *writer) copyWAL(mode string, pages *int) (busy bool, err error) {
	for row, err := range query(w.conn, "PRAGMA wal_checkpoint("+mode+")") {
		if err != nil {
			return false, err
		}
		busy, *pages = row.ColumnBool(0), row.ColumnInt(1)
	}
	return busy, nil
}

// updateReadMark reads, so that the index of the WAL gets a read mark for the last commit. Otherwise the next
// reader sets it, which writes to the memory-mapped index: on a frozen file system that reader would hang. See
// checkWritable.
func (w *writer) updateReadMark() { exec(w.conn, "PRAGMA user_version") }
