package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

// batch is the plants of one CreateBatch, and the memory that it takes to send them.
type batch struct {
	records []plant.Record
	order   []int // places in records, in the order of the keys; those of a key in the order given
	heads   []int // of them, the first of each key: it decides, and the others are compared with it

	found map[int]plant.Plant // by head: what stood in the way

	columns  [4][]byte // store, id, name, tag, as they are sent
	returned []int     // the heads whose plants an insert has stored
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(records []plant.Record) *batch {
	b := batches.Get().(*batch)
	b.records, b.order, b.heads = records, b.order[:0], b.heads[:0]
	for i := range records {
		b.order = append(b.order, i)
	}
	slices.SortFunc(b.order, func(i, j int) int { return cmp.Or(b.compare(i, j), cmp.Compare(i, j)) })
	for n, i := range b.order {
		if n == 0 || b.compare(i, b.order[n-1]) != 0 {
			b.heads = append(b.heads, i)
		}
	}
	return b
}

// recycle gives the memory to another batch, unless it is too much to keep.
func (b *batch) recycle() {
	const most = 1 << 20
	b.records, b.found = nil, nil
	for i := range b.columns {
		if cap(b.columns[i]) > most {
			b.columns[i] = nil
		}
	}
	batches.Put(b)
}

func (b *batch) compare(i, j int) int {
	return cmp.Or(cmp.Compare(b.records[i].Store, b.records[j].Store), cmp.Compare(b.records[i].ID, b.records[j].ID))
}

// errVanished: plants that stood in the way were removed each time before they could be read.
var errVanished = fmt.Errorf("%w: other plants of the same id are created and removed all the time", store.ErrBusy)

const maxRounds = 3

// create stores the plants that have no outcome yet and sets the outcomes. An error comes with
// whether something may be stored all the same, by this attempt or before it.
//
// The insert is a transaction by itself, so that a batch costs one round trip. What shall be stored
// with the plants goes between a BEGIN that is sent with the insert and a COMMIT that is sent with
// what depends on the rows that it returned: two round trips.
func (b *batch) create(ctx context.Context, conn *pgx.Conn, outcomes []plant.Outcome) (stored bool, err error) {
	undecided := withoutOutcome(b.heads, outcomes)
	for round := 0; len(undecided) > 0; round++ {
		if round == maxRounds {
			return stored, errVanished
		}
		unsure, err := b.insert(ctx, conn, undecided)
		if err != nil {
			return stored || unsure, err
		}
		for _, head := range b.returned {
			outcomes[head] = plant.Created
			stored = true
		}
		if len(b.returned) == len(undecided) {
			break
		}
		err = b.find(ctx, conn, withoutOutcome(undecided, outcomes), outcomes)
		// A plant that was found the same is there, whatever fails from here on: of it nobody may
		// say that it is not stored.
		stored = b.decideRest(outcomes) || stored
		if err != nil {
			return stored, err
		}
		undecided = withoutOutcome(undecided, outcomes)
	}
	if same := b.decideRest(outcomes); same {
		// Same says that the plant is as safe as if it had been created now.
		return true, confirm(ctx, conn)
	}
	return stored, nil
}

// withoutOutcome lists the heads that have none yet, in their order.
func withoutOutcome(heads []int, outcomes []plant.Outcome) (rest []int) {
	if !slices.ContainsFunc(heads, func(head int) bool { return outcomes[head] != 0 }) {
		return heads
	}
	for _, head := range heads {
		if outcomes[head] == 0 {
			rest = append(rest, head)
		}
	}
	return rest
}

var binaryFormat = []int16{pgtype.BinaryFormatCode}

// insertAll stores all plants and sets the outcomes, or fails with isTaken and has stored nothing.
func (b *batch) insertAll(ctx context.Context, conn *pgx.Conn, outcomes []plant.Outcome) (stored bool, err error) {
	result, err := b.send(ctx, conn, "insertPlants", insertPlants, b.heads)
	if err != nil {
		return false, err
	}
	tag, err := result.Close()
	if err != nil {
		return mayBeStored(err), err
	}
	if tag.RowsAffected() != int64(len(b.heads)) {
		return true, fmt.Errorf("the server stored %d of %d plants", tag.RowsAffected(), len(b.heads))
	}
	if err := heard(conn); err != nil {
		return true, err
	}
	for _, head := range b.heads {
		outcomes[head] = plant.Created
	}
	b.decideRest(outcomes)
	return true, nil
}

// insert sends the plants of some heads and notes in b.returned those that it has stored.
// An error comes with whether something may be stored all the same.
func (b *batch) insert(ctx context.Context, conn *pgx.Conn, heads []int) (unsure bool, err error) {
	rows, err := b.send(ctx, conn, "insertAbsent", insertAbsent, heads)
	if err != nil {
		return false, err
	}
	b.returned = b.returned[:0]
	strange := false
	for rows.NextRow() {
		values := rows.Values()
		head, ok := b.headOf(values[0], values[1])
		strange = strange || !ok
		b.returned = append(b.returned, head)
	}
	// The end of the rows is not the end of the transaction: only Close hears of the commit.
	if _, err := rows.Close(); err != nil {
		return mayBeStored(err), err
	}
	if strange {
		return true, errors.New("the server returned a plant that was not sent")
	}
	return true, heard(conn)
}

// send begins an insert. The driver's own encoding of arrays would allocate for each value.
func (b *batch) send(ctx context.Context, conn *pgx.Conn, name, sql string, heads []int) (*pgconn.ResultReader, error) {
	statement, err := conn.Prepare(ctx, name, sql)
	if err != nil {
		return nil, err
	}
	b.encode(heads)
	sayNothing(conn)
	return conn.PgConn().ExecStatement(ctx, statement, b.columns[:], binaryFormat, binaryFormat), nil
}

// headOf finds a head by its key as the server sends it.
func (b *batch) headOf(store, id []byte) (head int, ok bool) {
	number := int64(binary.BigEndian.Uint64(id))
	n, ok := slices.BinarySearchFunc(b.heads, number, func(head int, number int64) int {
		r := &b.records[head]
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
	return b.heads[n], true
}

// encode writes the plants of heads as the four arrays that an insert takes.
func (b *batch) encode(heads []int) {
	tags := 0
	for i, element := range [4]uint32{pgtype.TextOID, pgtype.Int8OID, pgtype.TextOID, pgtype.TextOID} {
		b.columns[i] = appendArray(b.columns[i][:0], element, len(heads))
	}
	store, id, name, tag := &b.columns[0], &b.columns[1], &b.columns[2], &b.columns[3]
	for _, head := range heads {
		r := &b.records[head]
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
	if tags < len(heads) {
		binary.BigEndian.PutUint32((*tag)[4:], 1) // it holds NULLs
	}
}

const nullLength = 1<<32 - 1

// appendArray begins an array of one dimension in PostgreSQL's binary format: its values follow.
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

// find reads what is stored under the keys of heads and compares. The statement has a snapshot of
// its own, so it sees every plant that the insert gave way to, unless that was removed since.
func (b *batch) find(ctx context.Context, conn *pgx.Conn, heads []int, outcomes []plant.Outcome) error {
	if b.found == nil {
		b.found = make(map[int]plant.Plant, len(heads))
	}
	stores, ids := make([]string, len(heads)), make([]int64, len(heads))
	for i, head := range heads {
		stores[i], ids[i] = b.records[head].Store, b.records[head].ID
	}
	rows, err := conn.Query(ctx, selectPlants, stores, ids)
	if err != nil {
		return err
	}
	var r plant.Record
	_, err = pgx.ForEachRow(rows, []any{&r.Store, &r.ID, &r.Name, &r.Tag}, func() error {
		n, ok := slices.BinarySearchFunc(heads, r, func(head int, r plant.Record) int {
			return cmp.Or(cmp.Compare(b.records[head].Store, r.Store), cmp.Compare(b.records[head].ID, r.ID))
		})
		if !ok {
			return errors.New("the server returned a plant that was not asked for")
		}
		b.found[heads[n]] = r.Plant
		outcomes[heads[n]] = compared(r.Plant, b.records[heads[n]].Plant)
		return nil
	})
	return err
}

// decideRest sets the outcomes of those that share a key with a head. It reports whether any
// plant is the same as one that was stored before.
func (b *batch) decideRest(outcomes []plant.Outcome) (same bool) {
	if len(b.heads) == len(b.records) && b.found == nil {
		return false
	}
	head := -1
	for _, i := range b.order {
		if head < 0 || b.compare(i, head) != 0 {
			head = i
		}
		there, stoodBefore := b.found[head]
		if !stoodBefore {
			there = b.records[head].Plant
		}
		if i != head {
			outcomes[i] = compared(there, b.records[i].Plant)
		}
		same = same || stoodBefore && outcomes[i] == plant.Same
	}
	return same
}

func compared(stored, sent plant.Plant) plant.Outcome {
	if stored.Equal(sent) {
		return plant.Same
	}
	return plant.Taken
}

// A plant that can be seen is on the server's disk. A standby that commits wait for may not have it
// yet: when a wait was cut short, or the server was started again in the middle of one. This writes
// a mark behind it, whose own commit waits.
const markLog = `
	SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
		THEN pg_logical_emit_message(true, 'plantstore', '') END`

// confirm returns when everything that was visible before it is as safe as a commit.
func confirm(ctx context.Context, conn *pgx.Conn) error {
	_, _, err := exec(ctx, conn, markLog)
	return err
}
