package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/token"
)

// A failed statement is reported as what it is: not as an absent plant, an unknown token or a name that is taken.
func TestBrokenTables(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "plants.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.writer.tx(func() error {
		return errors.Join(exec(s.writer.conn, "DROP TABLE plants"), exec(s.writer.conn, "DROP TABLE tokens"))
	}); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, createErr := s.CreateBatch(ctx, []plant.Record{{Store: "main"}})
	_, getErr := s.Get(ctx, "main", 1)
	_, listErr := s.List(ctx, "main", nil, 1)
	_, countErr := s.Count(ctx, "main")
	_, tokenErr := s.TokenByHash(ctx, token.Hash{})
	_, tokensErr := s.Tokens(ctx)
	for name, err := range map[string]error{
		"CreateBatch": createErr, "Get": getErr, "List": listErr, "Count": countErr,
		"TokenByHash": tokenErr, "Tokens": tokensErr,
		"Replace":     s.Replace(ctx, "main", 1, plant.Plant{}, nil),
		"Remove":      s.Remove(ctx, "main", 1, nil),
		"AddToken":    s.AddToken(ctx, token.Token{Created: time.Now()}),
		"RevokeToken": s.RevokeToken(ctx, "x", time.Now()),
		"Check":       s.Check(ctx),
	} {
		if err == nil || !strings.Contains(err.Error(), "no such table") {
			t.Errorf("%s without its table = %v, want an error about the table", name, err)
		}
	}
}

func TestTranslate(t *testing.T) {
	for code, want := range map[sqlite.ResultCode]string{
		sqlite.ResultFull:         "the disk of the database is full",
		sqlite.ResultNotADB:       "damaged",
		sqlite.ResultCorrupt:      "damaged",
		sqlite.ResultCorruptVTab:  "damaged",
		sqlite.ResultBusy:         "locked",
		sqlite.ResultBusySnapshot: "locked",
		sqlite.ResultLocked:       "locked",
		sqlite.ResultReadOnly:     "SQLITE_READONLY",
		sqlite.ResultCantOpen:     "SQLITE_CANTOPEN",
		sqlite.ResultIOErrMMap:    "SQLITE_IOERR_MMAP",
		sqlite.ResultPerm:         "SQLITE_PERM",
		sqlite.ResultNoMem:        "SQLITE_NOMEM",
		sqlite.ResultTooBig:       "SQLITE_TOOBIG",
		sqlite.ResultIOErrFsync:   "the disk failed to sync",
		sqlite.ResultIOErrWrite:   "a file can't be written",
		sqlite.ResultIOErrRead:    "a file can't be read",
	} {
		err := translate(fmt.Errorf("a step: %w", code.ToError()))
		wantErr := store.ErrUnavailable
		if code == sqlite.ResultFull {
			wantErr = store.ErrFull
		}
		if !errors.Is(err, wantErr) || !strings.Contains(err.Error(), want) || sqlite.ErrCode(err) != code {
			t.Errorf("translate(%v) = %v, want %v with %q", code, err, wantErr, want)
		}
	}
	for _, err := range []error{nil, plant.ErrNotFound, sqlite.ResultConstraint.ToError()} {
		if got := translate(err); got != err {
			t.Errorf("translate(%v) = %v, want it unchanged", err, got)
		}
	}
}
