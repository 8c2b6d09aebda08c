package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/storage/tables"
)

// result is what one attempt of a write returns.
type result struct {
	err    error
	stored bool
}

func TestWriteAttempts(t *testing.T) {
	t.Parallel()
	s := openStorage(t, pgtest.Database(t))
	code := func(code string) error { return &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: code} }
	lost := error(io.ErrUnexpectedEOF)
	for _, test := range []struct {
		name       string
		repeatable bool
		results    []result // the last one is repeated
		attempts   int
		want       error // nil: success
	}{
		{"success", false, []result{{nil, true}}, 1, nil},
		{"serialization failure", false, []result{{code(serializationFailure), false}}, 5, storage.ErrUnavailable},
		{"deadlock", true, []result{{code(deadlockDetected), false}}, 5, storage.ErrUnavailable},
		{"removed plants", true, []result{{errRemoved, false}}, 5, storage.ErrBusy},
		{"deadlock, then success", false, []result{{code(deadlockDetected), false}, {nil, true}}, 2, nil},
		{"lost connection", false, []result{{lost, false}}, 2, storage.ErrUnavailable},
		{"lost connection, then success", false, []result{{lost, false}, {nil, true}}, 2, nil},
		{"timeout", true, []result{{context.DeadlineExceeded, false}}, 1, storage.ErrUnavailable},
		{"full disk", true, []result{{code(diskFull), false}}, 1, storage.ErrFull},
		{"domain error", true, []result{{plant.ErrNotFound, false}}, 1, plant.ErrNotFound},
		{"maybe stored, not repeatable", false, []result{{lost, true}}, 1, storage.ErrUnknown},
		{"maybe stored, conflict, not repeatable", false, []result{{code(deadlockDetected), true}}, 1, storage.ErrUnknown},
		{"maybe stored, then success", true, []result{{lost, true}, {lost, true}, {lost, true}, {nil, true}}, 4, nil},
		{"maybe stored, then lost", true, []result{{lost, true}, {lost, false}, {lost, false}, {nil, true}}, 4, nil},
		{"maybe stored, timeout, then success", true, []result{{context.DeadlineExceeded, true}, {nil, true}}, 2, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			attempts := 0
			err := s.write(s.otherSlots, test.repeatable, func(context.Context, *pgx.Conn) (bool, error) {
				r := test.results[min(attempts, len(test.results)-1)]
				attempts++
				return r.stored, r.err
			})
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) || attempts != test.attempts {
				t.Errorf("write() = %v after %d attempts, want %v after %d", err, attempts, test.want, test.attempts)
			}
			if errors.Is(err, storage.ErrUnknown) && errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("write() = %v is also %v", err, storage.ErrUnavailable)
			}
		})
	}
}

// A write whose outcome is unknown is not repeated after Close, and its outcome stays unknown even if the
// last attempt has certainly stored nothing.
func TestWriteEndsWithClose(t *testing.T) {
	s := openStorage(t, pgtest.Database(t))
	defer s.closed.Store(false)
	attempts := 0
	err := s.write(s.otherSlots, true, func(context.Context, *pgx.Conn) (bool, error) {
		attempts++
		s.closed.Store(attempts == 2)
		return attempts == 1, io.ErrUnexpectedEOF
	})
	if !errors.Is(err, storage.ErrUnknown) || attempts != 2 {
		t.Errorf("write() = %v after %d attempts, want %v after 2", err, attempts, storage.ErrUnknown)
	}
}

// A transaction with a statement that the server refuses to prepare is not sent without it.
func TestTransactionIsSentWhole(t *testing.T) {
	t.Parallel()
	s := openStorage(t, pgtest.Database(t))
	_, err := database{s}.Write(false, tables.Statement{SQL: "DELETE FROM missing"},
		tables.Statement{SQL: "INSERT INTO plants VALUES ('main', 1, 'x', NULL)"})
	_, getErr := s.Get(t.Context(), "main", 1)
	if !hasCode(err, undefinedTable) || !errors.Is(getErr, plant.ErrNotFound) {
		t.Errorf("Write() = %v, and Get() = %v, want the code %s and %v", err, getErr, undefinedTable, plant.ErrNotFound)
	}
}

// The server does not check text that it reads from the disk. A cast without a function stores any bytes as text.
func TestDamagedText(t *testing.T) {
	t.Parallel()
	for column, size := range map[string]int{"name": 1, "tag": 1, "name of a large plant": storage.PageBytes} {
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			s := openStorage(t, pgtest.Database(t))
			storagetest.Create(t, s, record(1))
			column, _, _ = strings.Cut(column, " ")
			for _, statement := range []string{
				"CREATE CAST (bytea AS text) WITHOUT FUNCTION",
				fmt.Sprintf(`UPDATE plants SET %s = repeat('x', %d) || CAST(bytea '\xff' AS text)`, column, size),
			} {
				if _, err := s.pool.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			_, getErr := s.Get(t.Context(), "main", 1)
			_, listErr := s.List(t.Context(), "main", nil, 10)
			for _, err := range []error{getErr, listErr, s.Check(t.Context())} {
				if !errors.Is(err, storage.ErrDamaged) {
					t.Errorf("%v, want %v", err, storage.ErrDamaged)
				}
			}
		})
	}
}

// After a write has found damage, the database is not ready, even if other statements succeed.
func TestDamageIsReported(t *testing.T) {
	t.Parallel()
	s := openStorage(t, pgtest.Database(t))
	err := s.write(s.otherSlots, false, func(context.Context, *pgx.Conn) (bool, error) {
		return true, serverError("ERROR", dataCorrupted)
	})
	if !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("write() = %v, want %v", err, storage.ErrUnknown)
	}
	if err := s.Check(t.Context()); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("Check() = %v, want %v", err, storage.ErrDamaged)
	}
}
