package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

// batch is the plants of one CreateBatch. Plants are referred to by their index in records.
type batch struct {
	records []plant.Record
	order   []int // all indexes, sorted by key; those of the same key in the order of records
	firsts  []int // the first index of each key: only this plant is sent

	existing map[int]plant.Plant // by first: the plant that was stored before
}

func newBatch(records []plant.Record) *batch {
	b := &batch{records: records, order: make([]int, len(records)), firsts: make([]int, 0, len(records))}
	for i := range records {
		b.order[i] = i
	}
	slices.SortFunc(b.order, func(i, j int) int { return cmp.Or(b.compareKeys(i, j), cmp.Compare(i, j)) })
	for n, i := range b.order {
		if n == 0 || b.compareKeys(i, b.order[n-1]) != 0 {
			b.firsts = append(b.firsts, i)
		}
	}
	return b
}

func (b *batch) compareKeys(i, j int) int { return b.records[i].Key().Compare(b.records[j].Key()) }

// errRemoved: existing plants were removed before they could be read.
var errRemoved = fmt.Errorf("%w: plants with the same ids are created and removed repeatedly", store.ErrBusy)

// create stores the plants that have no outcome yet and sets their outcomes. If it fails, stored reports
// whether plants may be stored all the same, by this call or before it.
// If an id exists and the suffix is not ifAbsent, it fails with a unique violation, and nothing is stored.
//
// The insert is a transaction of its own, so that a batch of new plants takes one round trip.
func (b *batch) create(
	ctx context.Context, conn *pgx.Conn, suffix string, outcomes []plant.Outcome,
) (stored bool, err error) {
	undecided := withoutOutcome(b.firsts, outcomes)
	inserted, stored, err := b.insert(ctx, conn, undecided, suffix)
	if err != nil {
		return stored, err
	}
	for _, first := range inserted {
		outcomes[first] = plant.Created
	}
	stored = len(inserted) > 0
	if undecided = withoutOutcome(undecided, outcomes); len(undecided) > 0 {
		err = b.compareExisting(ctx, conn, undecided, outcomes)
	}
	// A plant that is the same as an existing one is stored, whatever fails from here on.
	same := b.decideDuplicates(outcomes)
	switch {
	case err != nil:
	case len(withoutOutcome(undecided, outcomes)) > 0:
		err = errRemoved
	case same: // it promises the durability of Created
		err = b.waitForStandbys(ctx, conn)
	}
	return stored || same, err
}

// withoutOutcome returns the indexes that have no outcome yet.
func withoutOutcome(indexes []int, outcomes []plant.Outcome) []int {
	return slices.DeleteFunc(slices.Clone(indexes), func(i int) bool { return outcomes[i] != 0 })
}

// insert sends plants and returns those that were stored: all, unless the suffix is ifAbsent. If it fails, stored
// reports whether plants may be stored all the same.
func (b *batch) insert(
	ctx context.Context, conn *pgx.Conn, firsts []int, suffix string,
) (inserted []int, stored bool, err error) {
	p, err := newPipeline(ctx, conn, false)
	if err == nil {
		err = b.addInsert(ctx, p, firsts, suffix)
	}
	if err != nil {
		return nil, false, err
	}
	p.each = func(rows pgx.Rows) error {
		var key plant.Key
		if err := rows.Scan(&key.Store, &key.ID); err != nil {
			return err
		}
		n, ok := slices.BinarySearchFunc(b.firsts, key, func(first int, key plant.Key) int {
			return b.records[first].Key().Compare(key)
		})
		if !ok {
			return errors.New("the server returned a plant that was not sent")
		}
		inserted = append(inserted, b.firsts[n])
		return nil
	}
	rows, stored, err := p.commit(ctx)
	if err == nil && suffix == "" {
		inserted = firsts
		if rows[0] != int64(len(firsts)) {
			err = fmt.Errorf("the server stored %d of %d plants", rows[0], len(firsts))
		}
	}
	return inserted, stored, err
}

// addInsert adds an insert of plants that ends with a suffix.
func (b *batch) addInsert(ctx context.Context, p *pipeline, firsts []int, suffix string) error {
	if c := sessionOf(p.conn).cluster; c != nil && len(firsts) > 0 {
		plants := make([]plant.Record, len(firsts))
		for i, first := range firsts {
			plants[i] = b.records[first]
		}
		if sql := c.Insert(plants, suffix); sql != "" {
			p.addText(sql)
			return nil
		}
	}
	n := len(firsts)
	stores, ids, names, tags := make([]string, n), make([]int64, n), make([]string, n), make([]*string, n)
	for i, first := range firsts {
		r := &b.records[first]
		stores[i], ids[i], names[i], tags[i] = r.Store, r.ID, r.Name, r.Tag
	}
	return p.add(ctx, insertPlants+suffix, stores, ids, names, tags)
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
		rows, err := query(ctx, conn, selectPlants, storeName, slices.Collect(maps.Keys(byID)))
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

// waitForStandbys is waitForStandby on the servers of the plants that existed before. In each shard of a cluster it
// updates one of them without changing it: this commit follows the plants in the server's WAL and waits for its
// standby.
func (b *batch) waitForStandbys(ctx context.Context, conn *pgx.Conn) error {
	var sample []plant.Key
	if c := sessionOf(conn).cluster; c != nil {
		var keys []plant.Key
		for first := range b.existing {
			keys = append(keys, b.records[first].Key())
		}
		sample = c.OnePerShard(keys)
	}
	if sample == nil {
		return waitForStandby(ctx, conn)
	}
	for _, key := range sample {
		if _, _, err := exec(ctx, conn, rewritePlant, key.Store, key.ID); err != nil {
			return err
		}
	}
	return nil
}
