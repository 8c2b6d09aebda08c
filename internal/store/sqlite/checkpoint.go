package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/machine"
	"plantstore/internal/plant"
)

// pageSize is the size of the pages of a new file. A create with a random id writes at least one page of its own, to
// the WAL and to the file. docs/benchmarks.md compares sizes.
const pageSize = 2048

const (
	stepBytes  = 2 << 20      // counted between two checkpoints: larger steps make the slowest commits slower
	walLimit   = 16 << 20     // from this size on, the WAL is made to restart from its beginning
	maxBacklog = 4 * walLimit // counted during a checkpoint before commits wait for its end
	restBytes  = 256 << 10    // the copy is repeated until it copies no more than this, and commits wait for the next one

	restartWait    = 20 * time.Millisecond // for readers, for each walLimit in the WAL
	maxRestartWait = 100 * time.Millisecond
	restartPause   = 5 * time.Second // after a wait that did not help
)

// checkpointer copies the WAL into the file. SQLite would do so by itself, but inside a commit, and would not report it
// when the sync of the file fails. What is committed is safe in the WAL either way.
type checkpointer struct {
	conn    *sqlite.Conn
	file    *os.File // the database, to sync it; see Store.closeFile
	index   *os.File // of the WAL; see resetCopied
	wake    chan struct{}
	stop    func() // closes quit and waits for a checkpoint that is running
	quit    chan struct{}
	running sync.WaitGroup
	copying sync.Mutex // held during a copy that commits do not wait for
	waited  time.Time  // when restart last waited for readers that did not end
	failure string     // why the writer must stop; set only after quit is closed
}

// startCheckpointer opens the connection and starts the goroutine.
func (w *writer) startCheckpointer() error {
	conn, err := openConn(w.target)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(w.target, os.O_RDWR, 0)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	c := &checkpointer{conn: conn, file: file, wake: make(chan struct{}, 1), quit: make(chan struct{})}
	c.stop = sync.OnceFunc(func() {
		close(c.quit)
		c.running.Wait()
	})
	c.running.Go(func() {
		for {
			select {
			case <-c.wake:
				w.checkpoint(c)
			case <-c.quit:
				return
			}
		}
	})
	if !w.command {
		c.running.Go(func() { readAhead(c.file, memorySize(machine.Read().Memory), c.quit) })
	}
	w.checkpointer = c
	return nil
}

// countBytes adds what a written plant appends to the WAL, approximately: the page of its key, and its text.
func (w *writer) countBytes(p plant.Plant) { w.walBytes += w.pageSize + int64(p.Size()) }

// countCommit starts a checkpoint if enough has been written since the last one.
func (w *writer) countCommit() {
	w.walBytes += w.pageSize
	if w.walBytes < stepBytes || w.checkpointer == nil { // nil: the commit is a migration
		return
	}
	select {
	case w.checkpointer.wake <- struct{}{}:
		w.walBytes = 0
		return
	default:
	}
	if w.walBytes >= maxBacklog { // the disk copies more slowly than it commits
		w.checkpointer.copying.Lock()
		w.checkpointer.copying.Unlock()
		w.walBytes = 0
	}
}

// checkpoint copies the WAL while commits go on. If the WAL is large, it then copies the rest while no commit runs, so
// that the WAL can restart.
func (w *writer) checkpoint(c *checkpointer) {
	start := time.Now()
	err := w.copyAndRestart(c)
	w.missingFile() // records the sizes
	if observe := w.observeCheckpoint.Load(); observe != nil {
		(*observe)(time.Since(start), err)
	}
	code := sqlite.ErrCode(err)
	switch code.ToPrimary() {
	case sqlite.ResultOK, sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultFull:
		return // the WAL is kept, and the next checkpoint tries again
	}
	if code == sqlite.ResultIOErrWrite { // kept as well
		return
	}
	reason := fmt.Sprintf("a checkpoint failed (%v)", describe(err))
	if p, ok := errors.AsType[*panicError](err); ok {
		reason = fmt.Sprintf("the checkpoint panicked: %v", p.value)
	}
	if code == sqlite.ResultIOErrFsync {
		if c.index, err = resetCopied(w.target); err != nil { // the next process that opens the database tries again
			reason += fmt.Sprintf(", and the index of the WAL still counts unsynced pages as copied (%v)", err)
		}
	}
	select {
	case w.lock <- struct{}{}:
		w.stop(reason)
		<-w.lock
	case <-c.quit:
		c.failure = reason
	}
}

// panicError is a panic in a checkpoint. Error includes the stack, for the observer; the reason for the stop omits it.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("panic in a checkpoint: %v\n%s", e.value, e.stack)
}

func (w *writer) copyAndRestart(c *checkpointer) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{r, debug.Stack()}
		}
	}()
	for before := int64(0); ; {
		if w.needsRestart.Load() || !w.mayCheckpoint() {
			return nil
		}
		log, err := c.copyAndSync()
		if err != nil || log.pages*w.pageSize < walLimit {
			return err
		}
		if (log.copied-before)*w.pageSize <= restBytes || log.pages*w.pageSize > maxBacklog {
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
	if w.stopped || !w.mayCheckpoint() {
		return nil
	}
	return c.restart(w.pageSize)
}

// mayCheckpoint reports whether the files are those that were opened, because the WAL may otherwise contain writes of
// other processes, and whether they can be written. It waits while the file system is frozen: see checkWritable.
func (w *writer) mayCheckpoint() bool {
	return w.missingFile() == "" && !errors.Is(syscall.Rmdir(w.target+"-none"), syscall.EROFS)
}

// copyAndSync copies what is in the WAL while commits go on, and syncs the file. SQLite itself syncs it only if nothing
// was committed meanwhile, so that the last copy, for which commits wait, would write everything to the disk.
func (c *checkpointer) copyAndSync() (walState, error) {
	c.copying.Lock()
	defer c.copying.Unlock()
	log, err := c.copy("PASSIVE")
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
	log, err := c.copy("PASSIVE")
	if err != nil || time.Since(c.waited) < restartPause {
		return err
	}
	c.conn.SetBusyTimeout(min(restartWait*time.Duration(log.pages*pageSize/walLimit), maxRestartWait))
	if log, err = c.copy("RESTART"); log.busy {
		c.waited = time.Now()
	}
	return err
}

// walState is the state of the WAL after a checkpoint.
type walState struct {
	pages, copied int64
	busy          bool // readers, or another process, kept the checkpoint from completing
}

func (c *checkpointer) copy(mode string) (log walState, err error) {
	for row, err := range query(c.conn, "PRAGMA wal_checkpoint("+mode+")") {
		if err != nil {
			return walState{}, err
		}
		log = walState{busy: row.ColumnBool(0), pages: row.ColumnInt64(1), copied: row.ColumnInt64(2)}
	}
	return log, nil
}

// resetCopied makes the next checkpoint copy the whole WAL again. Pages that were copied before a sync failed may not
// be on the disk, and the index of the WAL, which processes share, counts them as copied. SQLite creates the index anew
// only when no process has it open. So a process that writes also calls resetCopied before it opens the database: the
// one that saw the failure may have been killed, or unable to write the index. Copying a page twice does no harm.
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

// updateReadMark reads, so that the index of the WAL gets a read mark for the last commit. Otherwise the next
// reader sets it, which writes to the memory-mapped index: on a frozen file system that reader would hang. See
// checkWritable.
func (w *writer) updateReadMark() { exec(w.conn, "PRAGMA user_version") }
