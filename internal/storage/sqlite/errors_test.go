package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
)

// A text that can't have been created means that the file is damaged, and so does a rate.
func TestDamagedValues(t *testing.T) {
	s, ctx := newStorage(t), t.Context()
	var hash token.Hash
	key := plant.Record{Store: "main", Plant: plant.Plant{ID: 1}}
	for column, calls := range map[string]map[string]func() error{
		"plants name tag": {
			"Get":         func() error { _, err := s.Get(ctx, "main", 1); return err },
			"List":        func() error { _, err := s.List(ctx, "main", nil, 1); return err },
			"CreateBatch": func() error { _, err := s.CreateBatch(ctx, []plant.Record{key}); return err },
			"Remove":      func() error { return storagetest.Remove(ctx, s, "main", 1, nil) },
		},
		"tokens name store scopes tail rate": {
			"Tokens":      func() error { _, err := s.Tokens(ctx); return err },
			"TokenByHash": func() error { _, err := s.TokenByHash(ctx, hash); return err },
		},
	} {
		columns := strings.Fields(column)
		for _, column := range columns[1:] {
			text := "1\xff/s"
			switch column {
			case "name":
				text = "Fern\x00"
			case "rate":
				text = "30/x"
			}
			err := s.writer.tx(func() error {
				return errors.Join(exec(s.writer.conn, "DELETE FROM plants"), exec(s.writer.conn, "DELETE FROM tokens"),
					exec(s.writer.conn, "INSERT INTO plants (store, id, name) VALUES ('main', 1, '')"),
					exec(s.writer.conn, "INSERT INTO tokens (name, hash, store, scopes, tail, created)"+
						" VALUES ('x', ?, 'x', '', 'x', 1)", hash[:]),
					exec(s.writer.conn, "UPDATE "+columns[0]+" SET "+column+" = ?", text))
			})
			if err != nil {
				t.Fatal(err)
			}
			for what, call := range calls {
				err := call()
				if !errors.Is(err, storage.ErrDamaged) || !errors.Is(s.Check(ctx), err) {
					t.Errorf("%s with a damaged %s = %v, and a check = %v", what, column, err, s.Check(ctx))
				}
				s.damage = storage.Damage{}
			}
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
		sqlite.ResultIOErrSHMSize: "the index of the WAL can't be written",
		resultIOErrInPage:         "the index of the WAL can't be written",
	} {
		err := translate(fmt.Errorf("a step: %w", code.ToError()))
		wantErr := storage.ErrUnavailable
		if code == sqlite.ResultFull {
			wantErr = storage.ErrFull
		}
		if !errors.Is(err, wantErr) || !strings.Contains(err.Error(), want) || sqlite.ErrCode(err) != code ||
			strings.Count(err.Error(), "("+code.String()+")") != 1 {
			t.Errorf("translate(%v) = %v, want %v with %q and its code once", code, err, wantErr, want)
		}
	}
	for _, err := range []error{nil, plant.ErrNotFound, sqlite.ResultConstraint.ToError()} {
		if got := translate(err); got != err {
			t.Errorf("translate(%v) = %v, want it unchanged", err, got)
		}
	}
}
