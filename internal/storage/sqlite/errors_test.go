package sqlite

import (
	"cmp"
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

// A value that the schema does not allow means that the file is damaged.
func TestDamagedValues(t *testing.T) {
	s := newStorage(t)
	var hash token.Hash
	put := func(statement string, args ...any) {
		t.Helper()
		if err := s.writer.tx(func() error { return exec(s.writer.conn, statement, args...) }); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	put("DROP TABLE plants")
	put("DROP TABLE tokens")
	put("CREATE TABLE plants (store, id, name, tag, UNIQUE (store, id))")
	put("CREATE TABLE tokens (name, hash, store, scopes, tail, created, expires, revoked, rate, burst, last_used)")
	wantDamaged := func(what, column string, err error) {
		t.Helper()
		if got := s.Check(t.Context()); got == nil || err == nil || got.Error() != err.Error() {
			t.Errorf("Check() after %s = %v, want %v", what, got, err)
		}
		s.damage = storage.Damage{}
		if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), "it is damaged") ||
			!strings.Contains(err.Error(), column+" is ") {
			t.Errorf("%s = %v, want that it is damaged in column %s", what, err, column)
		}
	}
	ctx := t.Context()
	put("INSERT INTO plants (store, id) VALUES ('main', 1)")
	_, err := s.CreateBatch(ctx, []plant.Record{{Store: "main", Plant: plant.Plant{ID: 1}}})
	wantDamaged("CreateBatch", "name", err)
	_, err = s.Get(ctx, "main", 1)
	wantDamaged("Get", "name", err)
	_, err = s.List(ctx, "main", nil, 1)
	wantDamaged("List", "name", err)
	wantDamaged("Replace", "name", storagetest.Replace(ctx, s, "main", 1, plant.Content{}, nil))
	put("INSERT INTO plants (store, id, name) VALUES ('other', 'x', 'x')")
	_, err = s.List(ctx, "other", nil, 1)
	wantDamaged("List", "id", err)
	const invalidText = "it is damaged; restore a backup: a stored text"
	for id, column := range []string{"name", "tag"} {
		put("INSERT INTO plants (store, id, name, tag) VALUES ('text', ?, '', '')", int64(id))
		put("UPDATE plants SET "+column+" = ? WHERE store = 'text' AND id = ?", "Fern\xff", int64(id))
		p := plant.Plant{ID: int64(id)}
		after := p.ID - 1
		_, err := s.Get(ctx, "text", p.ID)
		wantDamaged("Get", invalidText, err)
		_, err = s.List(ctx, "text", &after, 1)
		wantDamaged("List", invalidText, err)
		_, err = s.CreateBatch(ctx, []plant.Record{{Store: "text", Plant: p}})
		wantDamaged("CreateBatch", invalidText, err)
		wantDamaged("Remove", invalidText, storagetest.Remove(ctx, s, "text", p.ID, nil))
	}

	for _, bad := range []struct {
		columns string
		value   any
		want    string // the column, if empty
	}{
		{"name hash store scopes tail created", (*string)(nil), ""},
		{"name store scopes tail", "1\xff/s", invalidText},
		{"rate", "1\xff/s", `stored rate: rate "1\xff/s"`},
	} {
		for column := range strings.FieldsSeq(bad.columns) {
			put("DELETE FROM tokens")
			put("INSERT INTO tokens (name, hash, store, scopes, tail, created) VALUES ('x', ?, 'x', '', 'x', 1)", hash[:])
			if _, err := s.TokenByHash(ctx, hash); err != nil {
				t.Fatal(err)
			}
			put("UPDATE tokens SET "+column+" = ?", bad.value)
			_, err := s.Tokens(ctx)
			wantDamaged("Tokens", cmp.Or(bad.want, column), err)
			if column != "hash" {
				_, err = s.TokenByHash(ctx, hash)
				wantDamaged("TokenByHash", cmp.Or(bad.want, column), err)
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
