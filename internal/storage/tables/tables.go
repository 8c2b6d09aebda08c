// Package tables implements the methods of storage.Storage whose statements are the same on every engine: tokens,
// sandboxes, webhooks, and the numbers and names of stores.
package tables

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// DB is what an engine provides. The parameters of a statement are $1, $2 and so on, and first occur in this order,
// which is how SQLite numbers them. Each is an int64, string, bool, []byte, *int64 or *string.
type DB interface {
	// Read returns the rows of a query. A value is an int64, string, bool or []byte, or nil for NULL. An int64 can be a
	// bool.
	Read(ctx context.Context, purpose Purpose, query string, args ...any) (rows [][]any, err error)
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

// row is a row of a query. Its methods return zero values for NULL.
type row struct {
	values []any
	err    error // a value can't have been stored
}

func get[T any](r *row, column int) T {
	value, ok := r.values[column].(T)
	if !ok && r.values[column] != nil {
		r.err = fmt.Errorf("%w: column %d of a row is a %T", storage.ErrDamaged, column+1, r.values[column])
	}
	return value
}

func (r *row) text(column int) string {
	text := get[string](r, column)
	r.err = cmp.Or(r.err, storage.CheckText(&text))
	return text
}

func (r *row) number(column int) int64 { return get[int64](r, column) }

func (r *row) isTrue(column int) bool {
	return r.values[column] == true || r.values[column] == int64(1)
}

func (r *row) time(column int) time.Time {
	if r.values[column] == nil {
		return time.Time{}
	}
	return time.UnixMilli(r.number(column)).UTC()
}

func (r *row) hash(column int) (h token.Hash) {
	copy(h[:], get[[]byte](r, column))
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
	damage  *storage.Damage
	expired string // see New
}

// New returns the tables of a database, which record its damage. expired is the query for the endpoint, status, event
// and due time of at most $2 deliveries that are to be removed at the time $1. An engine finds them by an index in its
// own way.
func New(db DB, damage *storage.Damage, expired string) Tables { return Tables{db, damage, expired} }

// read returns the rows of a query, each converted by of.
func read[T any](
	ctx context.Context, t Tables, purpose Purpose, of func(*row) T, query string, args ...any,
) (all []T, err error) {
	rows, err := t.db.Read(ctx, purpose, query, args...)
	for _, values := range rows {
		r := &row{values: values}
		all = append(all, of(r))
		if r.err != nil {
			return nil, t.damage.Record(r.err)
		}
	}
	return all, err
}

// readOne returns the row of a query that returns at most one, converted by of, or errNone.
func readOne[T any](
	ctx context.Context, t Tables, purpose Purpose, errNone error, of func(*row) T, query string, args ...any,
) (one T, err error) {
	all, err := read(ctx, t, purpose, of, query, args...)
	if err == nil && len(all) == 0 {
		err = errNone
	}
	if err != nil {
		return one, err
	}
	return all[0], nil
}

func textOf(r *row) string { return r.text(0) }

// change runs a statement, and returns errNone if it changed no row.
func (t Tables) change(repeatable bool, errNone error, sql string, args ...any) error {
	changed, err := t.db.Write(repeatable, Statement{sql, args})
	if err == nil && changed == 0 {
		err = errNone
	}
	return err
}

// writeEach runs a statement for each change, in one order, so that two processes do not wait for each other.
func writeEach[T any](t Tables, changes []T, order func(a, b T) int, of func(T) Statement) error {
	var all []Statement
	for _, c := range slices.SortedStableFunc(slices.Values(changes), order) {
		all = append(all, of(c))
	}
	_, err := t.db.Write(true, all...)
	return err
}

// Count implements storage.Plants. It reads all keys of the store.
func (t Tables) Count(ctx context.Context, store string) (int64, error) {
	of := func(r *row) int64 { return r.number(0) }
	return readOne(ctx, t, Count, nil, of, "SELECT count(*) FROM plants WHERE store = $1", store)
}

// NextStore selects the first store from a name on that has plants.
const NextStore = "SELECT store FROM plants WHERE store >= $1 ORDER BY store LIMIT 1"

// Stores implements storage.Plants. SELECT DISTINCT would read all keys, and Citus refuses a recursive query.
func (t Tables) Stores(ctx context.Context) (names []string, err error) {
	for first := ""; ; {
		next, err := read(ctx, t, Ordinary, textOf, NextStore, first)
		if err != nil || len(next) == 0 {
			return names, err
		}
		names = append(names, next[0])
		first = next[0] + "\x01" // the next in the order of bytes: no text has U+0000
	}
}
