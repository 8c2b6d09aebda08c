package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

// batch is the plants of one CreateBatch. Of those with the same key, only the first is sent.
type batch struct {
	records []plant.Record
	keys    []key // sorted
	keyOf   []int // for each record, the index of its key
}

// key is what is known of a key of a batch.
type key struct {
	first   *plant.Record  // the first with this key
	stored  *plant.Content // nil: unknown
	created bool           // by this batch
}

func newBatch(records []plant.Record) *batch {
	b := &batch{records: records, keyOf: make([]int, len(records))}
	order := make([]int, len(records))
	for i := range order {
		order[i] = i
	}
	compare := func(i, j int) int { return records[i].Key().Compare(records[j].Key()) }
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(compare(i, j), cmp.Compare(i, j)) })
	for n, i := range order {
		if n == 0 || compare(i, order[n-1]) != 0 {
			b.keys = append(b.keys, key{first: &records[i]})
		}
		b.keyOf[i] = len(b.keys) - 1
	}
	return b
}

// find returns a key that was sent.
func (b *batch) find(k plant.Key) (*key, error) {
	n, ok := slices.BinarySearchFunc(b.keys, k, func(have key, k plant.Key) int { return have.first.Key().Compare(k) })
	if !ok {
		return nil, errors.New("the server returned a plant that was not sent")
	}
	return &b.keys[n], nil
}

// undecided returns the keys of which nothing is known. Their first plants are to be sent.
func (b *batch) undecided() []*key {
	keys := make([]*key, 0, len(b.keys))
	for i := range b.keys {
		if b.keys[i].stored == nil {
			keys = append(keys, &b.keys[i])
		}
	}
	return keys
}

// outcome returns the outcome of a record once its key is decided.
func (b *batch) outcome(i int) plant.Outcome {
	k := &b.keys[b.keyOf[i]]
	switch {
	case k.created && k.first == &b.records[i]:
		return plant.Created
	case k.stored.Equal(b.records[i].Content):
		return plant.Same
	}
	return plant.Taken
}

// same returns the keys of the plants that were stored before, as they are.
func (b *batch) same() (keys []plant.Key) {
	for i := range b.records {
		if k := &b.keys[b.keyOf[i]]; k.stored != nil && !k.created && b.outcome(i) == plant.Same {
			keys = append(keys, k.first.Key())
		}
	}
	return keys
}

// errRemoved: existing plants were removed before they could be read.
var errRemoved = fmt.Errorf("%w: plants with the same ids are created and removed repeatedly", storage.ErrBusy)

// create stores the plants of the undecided keys, and decides them. If it fails, stored reports whether plants may be
// stored all the same, by this call or before it. If an id exists and the suffix is not ifAbsent, it fails with a
// unique violation, and nothing is stored.
//
// The insert is a transaction of its own, so that a batch of new plants takes one round trip.
func (b *batch) create(ctx context.Context, conn *pgx.Conn, suffix string) (stored bool, err error) {
	sent := b.undecided()
	if stored, err = b.insert(ctx, conn, sent, suffix); err != nil {
		return stored, err
	}
	existing := b.undecided()
	err = b.readExisting(ctx, conn, existing)
	same := b.same() // they are stored, whatever fails from here on
	switch {
	case err != nil:
	case len(b.undecided()) > 0:
		err = errRemoved
	case len(same) > 0: // Same promises the durability of Created
		err = waitForStandbys(ctx, conn, same)
	}
	return len(existing) < len(sent) || len(same) > 0, err
}

// insert sends plants and records which of them were created: all, unless the suffix is ifAbsent. If it fails, stored
// reports whether plants may be stored all the same.
func (b *batch) insert(ctx context.Context, conn *pgx.Conn, keys []*key, suffix string) (stored bool, err error) {
	p, err := newPipeline(ctx, conn, false)
	if err == nil {
		err = p.addInsert(ctx, keys, suffix)
	}
	if err != nil {
		return false, err
	}
	created := keys
	if suffix != "" {
		created = nil
		p.each = func(rows pgx.Rows) error {
			var k plant.Key
			if err := rows.Scan(&k.Store, &k.ID); err != nil {
				return err
			}
			found, err := b.find(k)
			created = append(created, found)
			return err
		}
	}
	rows, stored, err := p.commit(ctx)
	if err == nil && rows[0] != int64(len(created)) {
		err = fmt.Errorf("the server stored %d of %d plants", rows[0], len(created))
	}
	if err != nil {
		return stored, err
	}
	for _, k := range created {
		k.stored, k.created = &k.first.Content, true
	}
	return true, nil
}

// addInsert adds an insert of plants that ends with a suffix.
func (p *pipeline) addInsert(ctx context.Context, keys []*key, suffix string) error {
	plants := make([]*plant.Record, len(keys))
	for i, k := range keys {
		plants[i] = k.first
	}
	if c := sessionOf(p.conn).cluster; c != nil && len(plants) > 0 {
		if sql := c.Insert(plants, suffix); sql != "" {
			p.addText(sql)
			return nil
		}
	}
	n := len(plants)
	stores, ids, names, tags := make([]string, n), make([]int64, n), make([]string, n), make([]*string, n)
	for i, r := range plants {
		stores[i], ids[i], names[i], tags[i] = r.Store, r.ID, r.Name, r.Tag
	}
	return p.add(ctx, insertPlants+suffix, stores, ids, names, tags)
}

// readExisting reads the plants that exist under keys. The queries have snapshots of their own, so they
// see every plant that insert skipped, unless it has been removed since.
func (b *batch) readExisting(ctx context.Context, conn *pgx.Conn, keys []*key) error {
	ids := map[string][]int64{}
	for _, k := range keys {
		ids[k.first.Store] = append(ids[k.first.Store], k.first.ID)
	}
	for storeName := range ids {
		rows, err := query(ctx, conn, selectPlants, storeName, ids[storeName])
		if err != nil {
			return err
		}
		var p plant.Plant
		_, err = pgx.ForEachRow(rows, []any{&p.ID, &p.Name, &p.Tag}, func() error {
			k, err := b.find(plant.Key{Store: storeName, ID: p.ID})
			if err == nil {
				k.stored = &plant.Content{Name: p.Name, Tag: p.Tag}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// waitForStandbys is waitForStandby on the servers of plants. In each shard of a cluster it updates one of them
// without changing it: this commit follows the plants in the server's WAL and waits for its standby.
func waitForStandbys(ctx context.Context, conn *pgx.Conn, plants []plant.Key) error {
	var sample []plant.Key
	if c := sessionOf(conn).cluster; c != nil {
		sample = c.OnePerShard(plants)
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
