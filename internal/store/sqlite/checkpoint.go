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
	restartPages = 2 * maxWALBytes / pageSize
)

// countBytes adds what a written plant appends to the WAL, approximately: the page of its key, and its text.
func (w *writer) countBytes(p plant.Plant) { w.walBytes += int64(pageSize + p.Size()) }

// checkpoint copies the WAL into the file. SQLite would do so by itself, but would not report it when the sync of
// the file fails. What has just been committed is safe in the WAL either way.
//
// The WAL restarts from its beginning when no reader uses it. If readers always do, and it has grown to
// restartPages, checkpoint waits for them for restartWait, during which nothing is written.
func (w *writer) checkpoint() {
	w.walBytes = 0
	pages := 0
	err := w.copyWAL("PASSIVE", &pages)
	if err == nil && pages > restartPages {
		w.conn.SetBusyTimeout(restartWait)
		err = w.copyWAL("RESTART", &pages)
		w.conn.SetBusyTimeout(busyTimeout)
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

// copyWAL runs a checkpoint and sets pages to the size of the WAL.
func (w *writer) copyWAL(mode string, pages *int) error {
	for row, err := range query(w.conn, "PRAGMA wal_checkpoint("+mode+")") {
		if err != nil {
			return err
		}
		*pages = row.ColumnInt(1)
	}
	return nil
}

// updateReadMark reads, so that the index of the WAL gets a read mark for the last commit. Otherwise the next
// reader sets it, which writes to the memory-mapped index: on a frozen file system that reader would hang. See
// checkWritable.
func (w *writer) updateReadMark() { exec(w.conn, "PRAGMA user_version") }
