// Package tables keeps tokens, sandboxes and webhooks in the tables of a database: the methods of storage.Storage whose
// statements are the same on every engine.
package tables

import (
	"context"
	"time"

	"plantstore/internal/token"
)

// DB is what an engine provides. The parameters of a statement are $1, $2 and so on, and first occur in this order,
// which is how SQLite numbers them. Each is an int64, string, bool, []byte, *int64 or *string.
type DB interface {
	// Read returns the rows of a query.
	Read(ctx context.Context, purpose Purpose, query string, args ...any) ([]Row, error)
	// Write runs statements in one transaction, and returns how many rows they changed. Its promises are those of
	// storage.Plants. If the statements are repeatable, it may run them again to determine the outcome.
	Write(repeatable bool, statements ...Statement) (changed int64, err error)
}

// Purpose is what a query is for.
type Purpose int

const (
	Ordinary Purpose = iota
	Lookup           // of the token of a request: it does not wait for ordinary reads
	Count            // it may read a whole table, and gets more time
)

// Statement is a statement that changes rows, and its parameters.
type Statement struct {
	SQL  string
	Args []any
}

// Row has the values of a row: each is an int64, string, bool or []byte, or nil for NULL. An int64 can be a bool.
type Row []any

func (r Row) text(column int) string {
	text, _ := r[column].(string)
	return text
}

func (r Row) number(column int) int64 {
	n, _ := r[column].(int64)
	return n
}

func (r Row) isTrue(column int) bool { return r[column] == true || r[column] == int64(1) }

// time returns the time in a column, or the zero time for NULL.
func (r Row) time(column int) time.Time {
	if r[column] == nil {
		return time.Time{}
	}
	return time.UnixMilli(r.number(column)).UTC()
}

func (r Row) hash(column int) (h token.Hash) {
	stored, _ := r[column].([]byte)
	copy(h[:], stored)
	return h
}

// millis returns a time as it is stored: NULL for the zero time.
func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.UnixMilli())
}

// orNull returns a value as it is stored: NULL for the zero value.
func orNull[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

// Tables implements methods of storage.Storage on a database.
type Tables struct {
	db      DB
	expired string // see New
}

// New returns the tables of a database. expired is the query for the endpoint, status and event of at most $2
// deliveries that are to be removed at the time $1. An engine finds them by an index in its own way.
func New(db DB, expired string) Tables { return Tables{db, expired} }

// read returns what of makes of the rows of a query.
func read[T any](
	ctx context.Context, t Tables, of func(Row) (T, error), query string, args ...any,
) (all []T, err error) {
	rows, err := t.db.Read(ctx, Ordinary, query, args...)
	for _, row := range rows {
		value, err := of(row)
		if err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, err
}

// readOne returns the row of a query that returns at most one, or errNone.
func (t Tables) readOne(ctx context.Context, purpose Purpose, errNone error, query string, args ...any) (Row, error) {
	rows, err := t.db.Read(ctx, purpose, query, args...)
	if err == nil && len(rows) == 0 {
		err = errNone
	}
	if err != nil {
		return nil, err
	}
	return rows[0], nil
}

// change runs a statement, and returns errNone if it changed no row.
func (t Tables) change(repeatable bool, errNone error, sql string, args ...any) error {
	changed, err := t.db.Write(repeatable, Statement{sql, args})
	if err == nil && changed == 0 {
		err = errNone
	}
	return err
}

// Count implements storage.Plants. It reads all keys of the store.
func (t Tables) Count(ctx context.Context, store string) (int64, error) {
	row, err := t.readOne(ctx, Count, nil, "SELECT count(*) FROM plants WHERE store = $1", store)
	if err != nil {
		return 0, err
	}
	return row.number(0), nil
}

// NextStore selects the first store from a name on that has plants.
const NextStore = "SELECT store FROM plants WHERE store >= $1 ORDER BY store LIMIT 1"

// Stores implements storage.Plants. SELECT DISTINCT would read all keys, and Citus refuses a recursive query.
func (t Tables) Stores(ctx context.Context) (names []string, err error) {
	for first := ""; ; {
		rows, err := t.db.Read(ctx, Ordinary, NextStore, first)
		if err != nil || len(rows) == 0 {
			return names, err
		}
		names = append(names, rows[0].text(0))
		first = rows[0].text(0) + "\x01" // the next in the order of bytes: no text has U+0000
	}
}
