package sqlite

import (
	"errors"
	"fmt"
	"math"
	"os"

	"zombiezen.com/go/sqlite"
)

// Status is the state of a database file, for an operator.
type Status struct {
	Engine      string `json:"engine"`
	Database    string `json:"database"` // the path
	Version     string `json:"version"`
	Schema      int    `json:"schema"` // 0: there are no tables
	Plants      int64  `json:"plants"` // -1: not counted
	PlantsExact bool   `json:"plantsExact"`
	Tokens      int64  `json:"tokens"`
	JournalMode string `json:"journalMode"`
	Synchronous string `json:"synchronous"` // of the connections of this program
	InMemory    bool   `json:"inMemory"`    // whether a reboot loses the file
	PageSize    int64  `json:"pageSize"`
	Pages       int64  `json:"pages"`
	FreePages   int64  `json:"freePages"`
	Bytes       int64  `json:"bytes"`    // of the file
	WALBytes    int64  `json:"walBytes"` // of the write-ahead log next to it
}

// selectJournal reads the journal mode from the header of the file: the pragma returns that of the connection.
const selectJournal = "SELECT iif(substr(data, 19, 1) = x'02', 'wal', 'delete') FROM sqlite_dbpage WHERE pgno = 1"

// maxCounted is the size in bytes up to which the plants of a file are always counted. That takes seconds.
const maxCounted = 256 << 20

// ReadStatus returns the state of an existing database file, also while other processes use it. It changes nothing.
// The plants of a large file are counted only if count is set. If a reboot loses the file, the status is
// complete and the error says so.
func ReadStatus(path string, count bool) (*Status, error) {
	s := &Status{Engine: "sqlite", Database: path, Version: sqlite.Version, Synchronous: "FULL", Plants: -1}
	limit := int64(maxCounted)
	if count {
		limit = math.MaxInt64
	}
	if err := s.read(path, limit); err != nil {
		return nil, fmt.Errorf("read the status of the database %s: %w", path, translate(err))
	}
	if s.InMemory {
		return s, errors.New("the database is on an in-memory file system: a power loss or reboot loses every plant")
	}
	return s, nil
}

// read counts the plants if the database has at most limit bytes.
func (s *Status) read(path string, limit int64) error {
	target, info, err := findFile(path)
	if err != nil {
		return err
	}
	s.Bytes, s.InMemory = info.Size(), InMemory(target)
	if wal, err := os.Stat(target + walSuffix); err == nil {
		s.WALBytes = wal.Size()
	}
	conn, err := openUnchanged(target)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, s.Schema, err = schemaSteps(conn); err != nil {
		return err
	}
	if s.JournalMode, err = firstText(conn, selectJournal); err != nil {
		return err
	}
	numbers := map[*int64]string{
		&s.PageSize: "PRAGMA page_size", &s.Pages: "PRAGMA page_count", &s.FreePages: "PRAGMA freelist_count",
	}
	if s.Schema > 0 {
		numbers[&s.Tokens] = "SELECT count(*) FROM tokens"
		if s.PlantsExact = s.Bytes+s.WALBytes <= limit; s.PlantsExact {
			numbers[&s.Plants] = "SELECT count(*) FROM plants"
		}
	}
	for n, text := range numbers {
		if *n, err = number(conn, text); err != nil {
			return err
		}
	}
	return nil
}
