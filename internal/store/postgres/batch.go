package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

// batch is the plants of one CreateBatch and the buffers to send them. Plants are referred to by their index
// in records.
type batch struct {
	records []plant.Record
	order   []int // all indexes, sorted by key; those of the same key in the order of records
	firsts  []int // the first index of each key: only this plant is sent

	existing map[int]plant.Plant // by first: the plant that was stored before

	layout   *layout   // nil: plants is not distributed
	columns  [4][]byte // store, id, name and tag in PostgreSQL's binary format
	inserted []int     // the firsts that the last insertAbsent stored
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(records []plant.Record) *batch {
	b := batches.Get().(*batch)
	b.records, b.order, b.firsts, b.layout = records, b.order[:0], b.firsts[:0], nil
	for i := range records {
		b.order = append(b.order, i)
	}
	slices.SortFunc(b.order, func(i, j int) int { return cmp.Or(b.compareKeys(i, j), cmp.Compare(i, j)) })
	for n, i := range b.order {
		if n == 0 || b.compareKeys(i, b.order[n-1]) != 0 {
			b.firsts = append(b.firsts, i)
		}
	}
	return b
}

// free lets another batch use the buffers, except large ones.
func (b *batch) free() {
	const maxBuffer = 1 << 20
	b.records, b.existing = nil, nil
	for i := range b.columns {
		if cap(b.columns[i]) > maxBuffer {
			b.columns[i] = nil
		}
	}
	batches.Put(b)
}

func (b *batch) compareKeys(i, j int) int { return b.records[i].Key().Compare(b.records[j].Key()) }

// errRemoved: in each round, existing plants were removed before they could be read.
var errRemoved = fmt.Errorf("%w: plants with the same ids are created and removed repeatedly", store.ErrBusy)

const maxRounds = 3

// create stores the plants that have no outcome yet and sets their outcomes. If it fails, stored reports
// whether plants may be stored all the same, by this call or before it.
//
// Each insert is a transaction of its own, so that a batch of new plants takes one round trip.
func (b *batch) create(ctx context.Context, conn *pgx.Conn, outcomes []plant.Outcome) (stored bool, err error) {
	undecided := withoutOutcome(b.firsts, outcomes)
	for round := 0; len(undecided) > 0; round++ {
		if round == maxRounds {
			return stored, errRemoved
		}
		maybe, err := b.insertAbsent(ctx, conn, undecided)
		if err != nil {
			return stored || maybe, err
		}
		for _, first := range b.inserted {
			outcomes[first] = plant.Created
			stored = true
		}
		if len(b.inserted) == len(undecided) {
			break
		}
		err = b.compareExisting(ctx, conn, withoutOutcome(undecided, outcomes), outcomes)
		// A plant that is the same as an existing one is stored, whatever fails from here on.
		stored = b.decideDuplicates(outcomes) || stored
		if err != nil {
			return stored, err
		}
		undecided = withoutOutcome(undecided, outcomes)
	}
	if same := b.decideDuplicates(outcomes); same { // Same promises the durability of Created
		if b.layout != nil {
			return true, b.waitForStandbys(ctx, conn)
		}
		return true, waitForStandby(ctx, conn)
	}
	return stored, nil
}

// withoutOutcome returns the indexes that have no outcome yet.
func withoutOutcome(indexes []int, outcomes []plant.Outcome) []int {
	return slices.DeleteFunc(slices.Clone(indexes), func(i int) bool { return outcomes[i] != 0 })
}

var binaryFormat = []int16{pgtype.BinaryFormatCode}

// insertNew stores all plants and sets the outcomes. If an id exists it stores nothing and fails with
// isUniqueViolation.
func (b *batch) insertNew(ctx context.Context, conn *pgx.Conn, outcomes []plant.Outcome) (stored bool, err error) {
	result, err := b.send(ctx, conn, "insertPlants", insertPlants, "", b.firsts)
	if err != nil {
		return false, err
	}
	tag, err := result.Close()
	if err != nil {
		return mayBeStored(err, sessionOf(conn).citus), err
	}
	if tag.RowsAffected() != int64(len(b.firsts)) {
		return true, fmt.Errorf("the server stored %d of %d plants", tag.RowsAffected(), len(b.firsts))
	}
	if err := checkWarning(conn); err != nil {
		return true, err
	}
	for _, first := range b.firsts {
		outcomes[first] = plant.Created
	}
	b.decideDuplicates(outcomes)
	return true, nil
}

// insertAbsent sends plants and sets b.inserted to those whose ids did not exist. If it fails, stored reports
// whether plants may be stored all the same.
func (b *batch) insertAbsent(ctx context.Context, conn *pgx.Conn, firsts []int) (stored bool, err error) {
	rows, err := b.send(ctx, conn, "insertAbsent", insertAbsent, ifAbsent, firsts)
	if err != nil {
		return false, err
	}
	b.inserted = b.inserted[:0]
	unexpected := false
	for rows.NextRow() {
		values := rows.Values()
		first, ok := b.find(values[0], values[1])
		unexpected = unexpected || !ok
		b.inserted = append(b.inserted, first)
	}
	// The server sends the rows before it commits: only Close returns an error of the commit.
	if _, err := rows.Close(); err != nil {
		return mayBeStored(err, sessionOf(conn).citus), err
	}
	if unexpected {
		return true, errors.New("the server returned a plant that was not sent")
	}
	return true, checkWarning(conn)
}

// send executes an insert of arrays or, if plants is distributed, one of VALUES that ends with a suffix. It encodes the
// plants itself because pgx would allocate memory for each value.
func (b *batch) send(
	ctx context.Context, conn *pgx.Conn, name, sql, suffix string, firsts []int,
) (insertResult, error) {
	clearWarning(conn)
	params := [][]byte(nil)
	asValues := b.layout != nil && len(firsts) > 0
	if asValues {
		sql = b.insertValues(firsts, suffix)
	} else {
		b.encode(firsts)
		params = b.columns[:]
	}
	session := sessionOf(conn)
	switch {
	case session.pooled:
		return session.sendPooled(ctx, conn, sql, params, binaryFormat), nil
	case asValues:
		rows := conn.PgConn().ExecParams(ctx, sql, nil, nil, nil, binaryFormat)
		return insertResult{ResultReader: rows}, nil
	}
	statement, err := conn.Prepare(ctx, name, sql)
	if err != nil {
		return insertResult{}, err
	}
	rows := conn.PgConn().ExecStatement(ctx, statement, params, binaryFormat, binaryFormat)
	return insertResult{ResultReader: rows}, nil
}

// find returns the first index of a key in PostgreSQL's binary format.
func (b *batch) find(store, id []byte) (first int, ok bool) {
	number := int64(binary.BigEndian.Uint64(id))
	n, ok := slices.BinarySearchFunc(b.firsts, number, func(first int, number int64) int {
		r := &b.records[first]
		switch {
		case r.Store < string(store):
			return -1
		case r.Store > string(store):
			return 1
		}
		return cmp.Compare(r.ID, number)
	})
	if !ok {
		return 0, false
	}
	return b.firsts[n], true
}

// encode writes plants as the four arrays that are the parameters of an insert.
func (b *batch) encode(firsts []int) {
	tags := 0
	for i, element := range [4]uint32{pgtype.TextOID, pgtype.Int8OID, pgtype.TextOID, pgtype.TextOID} {
		b.columns[i] = appendArray(b.columns[i][:0], element, len(firsts))
	}
	store, id, name, tag := &b.columns[0], &b.columns[1], &b.columns[2], &b.columns[3]
	for _, first := range firsts {
		r := &b.records[first]
		*store = appendText(*store, r.Store)
		*id = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(*id, 8), uint64(r.ID))
		*name = appendText(*name, r.Name)
		if r.Tag == nil {
			*tag = binary.BigEndian.AppendUint32(*tag, nullLength)
			continue
		}
		*tag = appendText(*tag, *r.Tag)
		tags++
	}
	if tags < len(firsts) {
		binary.BigEndian.PutUint32((*tag)[4:], 1) // the array contains NULLs
	}
}

const nullLength = 1<<32 - 1

// appendArray appends the header of a one-dimensional array in PostgreSQL's binary format.
func appendArray(to []byte, element uint32, length int) []byte {
	dimensions := uint32(1)
	if length == 0 {
		dimensions = 0
	}
	for _, n := range [3]uint32{dimensions, 0, element} {
		to = binary.BigEndian.AppendUint32(to, n)
	}
	if length == 0 {
		return to
	}
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(to, uint32(length)), 1)
}

func appendText(to []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(to, uint32(len(text))), text...)
}

// compareExisting reads the plants that exist under the keys of firsts and sets the outcomes. The queries have
// snapshots of their own, so they see every plant that insertAbsent skipped, unless it has been removed since.
func (b *batch) compareExisting(
	ctx context.Context, conn *pgx.Conn, firsts []int, outcomes []plant.Outcome,
) error {
	if b.existing == nil {
		b.existing = make(map[int]plant.Plant, len(firsts))
	}
	for len(firsts) > 0 {
		storeName := b.records[firsts[0]].Store
		byID := map[int64]int{} // the plants of one store
		for len(firsts) > 0 && b.records[firsts[0]].Store == storeName {
			byID[b.records[firsts[0]].ID] = firsts[0]
			firsts = firsts[1:]
		}
		rows, err := conn.Query(ctx, selectPlants, storeName, slices.Collect(maps.Keys(byID)))
		if err != nil {
			return err
		}
		var p plant.New
		_, err = pgx.ForEachRow(rows, []any{&p.ID, &p.Name, &p.Tag}, func() error {
			first, ok := byID[p.ID]
			if !ok {
				return errors.New("the server returned a plant that was not requested")
			}
			b.existing[first] = p.Plant
			outcomes[first] = outcomeOf(b.records[first].Plant, p.Plant)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// decideDuplicates sets the outcomes of the plants that are not the first of their key. It reports whether
// the outcome of any plant is Same because of a plant that was stored before.
func (b *batch) decideDuplicates(outcomes []plant.Outcome) (same bool) {
	if len(b.firsts) == len(b.records) && b.existing == nil {
		return false
	}
	first := -1
	for _, i := range b.order {
		if first < 0 || b.compareKeys(i, first) != 0 {
			first = i
		}
		stored, existed := b.existing[first]
		if !existed {
			stored = b.records[first].Plant
		}
		if i != first {
			outcomes[i] = outcomeOf(b.records[i].Plant, stored)
		}
		same = same || existed && outcomes[i] == plant.Same
	}
	return same
}

func outcomeOf(sent, stored plant.Plant) plant.Outcome {
	if stored.Equal(sent) {
		return plant.Same
	}
	return plant.Taken
}
