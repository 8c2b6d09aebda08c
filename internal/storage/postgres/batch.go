package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/tables"
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
	for _, i := range plant.ByKey(records, (*plant.Record).Key) {
		if n := len(b.keys); n == 0 || b.keys[n-1].first.Key() != records[i].Key() {
			b.keys = append(b.keys, key{first: &records[i]})
		}
		b.keyOf[i] = len(b.keys) - 1
	}
	return b
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
// stored all the same.
//
// Usually every key is new, and then the insert is all: a transaction of its own, in one round trip. If a key exists,
// the insert stores nothing, and create reads the existing plants and inserts the others. Each round decides a key.
func (b *batch) create(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
	for keys := b.undecided(); err == nil && len(keys) > 0; {
		if stored, err = insert(ctx, conn, keys); !hasCode(err, uniqueViolation) {
			break
		}
		err = b.readExisting(ctx, conn, keys)
		left := b.undecided()
		if err == nil && len(left) == len(keys) {
			err = errRemoved
		}
		keys = left
	}
	if same := b.same(); err == nil && len(same) > 0 {
		stored, err = true, waitForStandbys(ctx, conn, same) // Same promises the durability of Created
	}
	return stored, err
}

// insert stores the first plants of keys, or none. If it fails, stored reports whether they may be stored all the same.
func insert(ctx context.Context, conn *pgx.Conn, keys []*key) (stored bool, err error) {
	withEvents := slices.ContainsFunc(keys, func(k *key) bool { return k.first.Event != "" })
	p := newPipeline(ctx, conn, withEvents)
	p.addInsert(ctx, keys)
	if withEvents {
		p.addEvents(ctx, keys)
	}
	rows, stored, err := p.commit(ctx)
	if err == nil && rows[0] != int64(len(keys)) {
		err = fmt.Errorf("the server stored %d of %d plants", rows[0], len(keys))
	}
	if err != nil {
		return stored, err
	}
	for _, k := range keys {
		k.stored, k.created = &k.first.Content, true
	}
	return true, nil
}

func (p *pipeline) addInsert(ctx context.Context, keys []*key) {
	n := len(keys)
	plants, stores, ids := make([]*plant.Record, n), make([]string, n), make([]int64, n)
	names, tags := make([]string, n), make([]*string, n)
	for i, k := range keys {
		r := k.first
		plants[i], stores[i], ids[i], names[i], tags[i] = r, r.Store, r.ID, r.Name, r.Tag
	}
	if c := sessionOf(p.conn).cluster; c != nil && n > 0 {
		p.addText(c.Insert(plants))
		return
	}
	p.add(ctx, insertPlants, stores, ids, names, tags)
}

// readExisting decides the keys whose plants exist. The queries have snapshots of their own, so they see the plant that
// an insert has failed because of, unless it has been removed since.
func (b *batch) readExisting(ctx context.Context, conn *pgx.Conn, keys []*key) error {
	idsOf := map[string][]int64{}
	for _, k := range keys {
		idsOf[k.first.Store] = append(idsOf[k.first.Store], k.first.ID)
	}
	for storeName, ids := range idsOf {
		found, err := plantsByID(ctx, conn, storeName, ids)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if content, ok := found[k.first.ID]; ok && k.first.Store == storeName {
				k.stored = &content
			}
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
		rewrite := tables.Statement{SQL: rewritePlant, Args: []any{key.Store, key.ID}}
		if _, _, err := exec(ctx, conn, rewrite); err != nil {
			return err
		}
	}
	return nil
}
