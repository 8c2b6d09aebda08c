package sqlite

import (
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
)

const (
	pageSize     = 4096
	maxWALPages  = 4000 // pages appended to the log after which it is copied into the file
	restartWait  = 100 * time.Millisecond
	restartPages = 2 * maxWALPages
)

// countPages adds what a written plant appends to the log, approximately.
func (w *writer) countPages(p plant.Plant) { w.walPages += 1 + p.Size()/pageSize }

// checkpoint copies the log into the file. SQLite would do so by itself, but would not report it when the sync of
// the file fails. What has just been committed is safe in the log either way.
//
// The log restarts from its beginning when no reader uses it. If readers always do, and it has grown to
// restartPages, checkpoint waits for them for restartWait, during which nothing is written.
func (w *writer) checkpoint() {
	w.walPages = 0
	pages := 0
	err := w.copyLog("PASSIVE", &pages)
	if err == nil && pages > restartPages {
		w.conn.SetBusyTimeout(restartWait)
		err = w.copyLog("RESTART", &pages)
		w.conn.SetBusyTimeout(busyTimeout)
	}
	code := sqlite.ErrCode(err)
	switch code.ToPrimary() {
	case sqlite.ResultOK:
	case sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultFull: // the log is kept, and the next checkpoint tries again
	default:
		if code != sqlite.ResultIOErrWrite { // kept as well
			w.stop(fmt.Sprintf("a checkpoint failed (%v)", describe(err)))
		}
	}
}

// copyLog runs a checkpoint and sets pages to the size of the log.
func (w *writer) copyLog(mode string, pages *int) error {
	for row, err := range query(w.conn, "PRAGMA wal_checkpoint("+mode+")") {
		if err != nil {
			return err
		}
		*pages = row.ColumnInt(1)
	}
	return nil
}

// updateReadMark reads, so that the index of the log gets a read mark for the last commit. Otherwise the next
// reader sets it, which writes to the memory-mapped index: on a frozen file system that reader would hang. See
// checkWritable.
func (w *writer) updateReadMark() { exec(w.conn, "PRAGMA user_version") }
