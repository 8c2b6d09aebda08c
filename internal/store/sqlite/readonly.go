package sqlite

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/store"
)

const (
	// minSpace is enough free space on the disk to open the database. The index of the WAL takes 32 KiB for each 4096
	// pages. The WAL has at most three times maxBacklog, unless reads that last for minutes keep it from restarting: with
	// pages of 2 KiB its index takes 768 KiB.
	minSpace     = 1 << 20
	emptyTimeout = time.Second // for reads in flight to end before connections are opened again
)

var errReadOnly = fmt.Errorf("%w: the database is open for reading only until %d MiB is free",
	store.ErrFull, minSpace>>20)

// connect opens the connection of the writer and those that read, or on a full disk only the latter.
func (s *Store) connect() error {
	switch err := s.writer.open(); {
	case err == nil:
		return s.fill(openReader)
	case s.isFull(err):
		return s.connectReadOnly()
	default:
		return err
	}
}

// fill opens the connections that read.
func (s *Store) fill(open func(path string) (*sqlite.Conn, error)) error {
	openTarget := func() (*sqlite.Conn, error) { return open(s.writer.target) }
	return cmp.Or(s.readers.fill(openTarget), s.lookups.fill(openTarget)) // usually for the same reason
}

// isFull reports whether err, with which the writer could not be opened, means that the disk is full. SQLite does not
// return SQLITE_FULL if the index of the WAL can't be written or the WAL can't be created.
func (s *Store) isFull(err error) bool {
	if isNoSpace(err) { // from resetCopied, on a copy-on-write file system
		return !s.writer.stopped
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull, sqlite.ResultIOErr, sqlite.ResultCantOpen:
		return !s.writer.stopped && isNoSpace(checkSpace(s.writer.target))
	}
	return false
}

// connectReadOnly opens the connections that read on a full disk. The writer opens its own when space is free.
func (s *Store) connectReadOnly() error {
	err := s.writer.syncWAL() // before a connection is open, because closing the last one would sync again
	if err == nil {
		err = s.fill(openExclusive)
	}
	if err == nil {
		err = s.checkConn(checkVersion)
	}
	switch {
	case errors.Is(err, store.ErrFull), s.writer.stopped:
		return err
	case err != nil:
		return fmt.Errorf("%w; free at least %d MiB: %w", store.ErrFull, minSpace>>20, err)
	}
	s.writer.connect = s.leaveReadOnly
	s.writer.setFailure(errReadOnly)
	return nil
}

func (s *Store) checkConn(check func(*sqlite.Conn) error) error {
	conn := <-s.lookups.idle
	defer s.lookups.put(conn)
	return check(conn)
}

// leaveReadOnly opens the connections of a normal start once the disk has space. Connections of the two kinds must not
// be open at the same time: they would share the index in memory, and other processes would stay locked out. So reads
// wait.
//
// When the last connection is closed, SQLite copies the WAL into the file, and does not report it if a sync fails. It
// then keeps the WAL, and the writer drops the page cache before it opens the file, as after a restart.
func (s *Store) leaveReadOnly() error {
	switch err := checkSpace(s.writer.target); {
	case isNoSpace(err):
		return errReadOnly
	case err != nil:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	timeout := time.After(emptyTimeout)
	if !s.lookups.empty(timeout) {
		return errReadOnly
	}
	if !s.readers.empty(timeout) {
		s.lookups.fill(s.lookups.open)
		return errReadOnly
	}
	err := s.writer.open()
	if s.writer.conn == nil {
		err = errors.Join(err, s.fill(openExclusive))
	} else {
		err = errors.Join(err, s.fill(openReader))
	}
	if err != nil && !errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

// checkSpace writes minSpace bytes to a temporary file next to the database.
func checkSpace(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "plantstore-space-*")
	if err != nil {
		return withoutPath(err)
	}
	os.Remove(f.Name()) // first, so that a killed process leaves nothing behind
	_, err = f.Write(make([]byte, minSpace))
	return withoutPath(errors.Join(err, f.Close()))
}

// isNoSpace reports whether the disk, or the quota of the user, has no space left.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
