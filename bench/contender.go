package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver that reads the file

	"plantstore/bench/measure"
	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/token"
	"plantstore/internal/webhook"
)

// contender is a program to start and the requests that it accepts.
type contender struct {
	program string
	args    []string
	api     api
	token   string
	first   int64 // first sequence number
	clean   func()
	verify  func(context.Context, measure.Report) error
}

// product is the path of the service that a row measures.
func (b *bench) product(r *row) string { return cmp.Or(r.program, b.bin("plantstore")) }

// contender prepares a row: its database, with a token and perhaps with plants in it.
func (b *bench) contender(r *row) (*contender, error) {
	switch r.kind {
	case pocketBase, pocketBaseQuiet:
		return b.pocketBase(r)
	case postgresProduct:
		return b.postgres.contender(b.ctx, b.product(r), r, b.stored)
	case citus:
		return b.cluster.contender(b.ctx, b.bin("plantstore"), r), nil
	case bare:
		return b.bare(), nil
	}
	db, err := b.database(r)
	if err != nil {
		return nil, err
	}
	c := &contender{api: productAPI, token: db.token, first: db.sent, clean: db.clean}
	c.verify = func(ctx context.Context, report measure.Report) error {
		switch {
		case r.kind == noStore || !r.writes():
			return nil
		case r.request != create || r.creators > 0:
			return r.checkStored(report, b.stored, countIn(ctx, db.path))
		}
		db.add(report, r)
		if db == b.full || r.store != nil {
			return nil // see verifyShared
		}
		return db.verify(ctx)
	}
	c.program, c.args = b.bin("variant"), []string{"--db", db.path}
	switch r.kind {
	case product:
		c.program, c.args = b.product(r), serveArgs(db.path)
		if r.endpoint {
			st, err := sqlite.OpenCommand(b.ctx, db.path, false)
			if err != nil {
				return nil, err
			}
			return c, c.addEndpoint(b.ctx, st)
		}
	case noStore:
		c.args = append(c.args, "--kind", "none")
	case single:
		c.args = append(c.args, "--kind", "single")
	case slow:
		c.args = append(c.args, "--kind", "product", "--slower", r.slower.String())
	}
	return c, nil
}

// bare prepares the handler without a store, which accepts one token.
func (b *bench) bare() *contender {
	const token = "plant_0123456789abcdefghijklmnopqrstuvwxyz" // as long as one of the product
	return &contender{
		program: b.bin("variant"), args: []string{"--kind", "bare", "--token", token},
		api: productAPI, token: token, clean: func() {},
		verify: func(context.Context, measure.Report) error { return nil },
	}
}

// addEndpoint adds a webhook endpoint to a database that no process has open, with a receiver that accepts everything.
func (c *contender) addEndpoint(ctx context.Context, st storage.Storage) error {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	clean := c.clean
	c.clean = func() { receiver.Close(); clean() }
	c.args = append(c.args, "--webhook-targets", "private")
	err := st.AddWebhook(ctx, storage.Webhook{
		ID: "wh_bench", Store: token.DefaultStore, Enabled: true, Created: time.Now(),
		Settings: fmt.Sprintf(`{"kind":"push","url":%q,"secret":%q}`, receiver.URL, webhook.NewSecret()),
	})
	return errors.Join(err, st.Close())
}

func serveArgs(db string) []string {
	return []string{"serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}
}

// database is an SQLite file of the product and the plants that it must contain.
type database struct {
	path  string
	token string
	sent  int64 // sequence numbers used
	count int64 // plants that it must contain
	maybe int64 // plants that it may contain in addition: their creates did not return 200
	spots []plant.Plant
	clean func()
}

// database returns the database of a row: an empty one, the one with many plants, or the one for reads and edits, of
// which rows that write get a copy. The one with many plants grows, unless two programs are compared.
func (b *bench) database(r *row) (*database, error) {
	fresh := r.request == create && !r.full && r.creators == 0
	switch {
	case r.store != nil:
		return r.store.db, nil
	case fresh:
		return b.newDatabase(b.product(r))
	case r.full:
		if err := b.prepare(&b.full, b.preload, measure.SpreadID); err != nil || r.program == "" {
			return b.full, err
		}
		return b.copyOf(b.full)
	}
	ascending := func(i, _ int64) int64 { return measure.ID(i, false) }
	if err := b.prepare(&b.readable, b.stored, ascending); err != nil || !r.writes() {
		return b.readable, err
	}
	db, err := b.copyOf(b.readable)
	if err == nil && r.request.isRead() {
		db.sent = b.stored // creates follow the stored plants
	}
	return db, err
}

// newDatabase creates an empty database with a token.
func (b *bench) newDatabase(program string) (*database, error) {
	dir, err := os.MkdirTemp(b.dir, "db")
	if err != nil {
		return nil, err
	}
	db := &database{path: filepath.Join(dir, "plants.db"), clean: func() { os.RemoveAll(dir) }}
	issued, err := command(b.ctx, nil, nil, program, "token", "issue", "--name", "bench", "--db", db.path)
	if err != nil {
		return nil, err
	}
	db.token = strings.TrimSpace(string(issued))
	return db, nil
}

// prepare creates a database with n plants that several rows use, if it does not exist.
func (b *bench) prepare(at **database, n int64, id func(i, n int64) int64) error {
	if *at != nil {
		return nil
	}
	db, err := b.newDatabase(b.bin("plantstore"))
	if err != nil {
		return err
	}
	db.clean = func() {}
	if err := b.fill(db, n, id); err != nil {
		return err
	}
	*at = db
	return nil
}

// copyOf copies a database that no process has open.
func (b *bench) copyOf(db *database) (*database, error) {
	dir, err := os.MkdirTemp(b.dir, "db")
	if err != nil {
		return nil, err
	}
	twin := *db
	twin.path, twin.clean = filepath.Join(dir, "plants.db"), func() { os.RemoveAll(dir) }
	return &twin, copyFile(db.path, twin.path)
}

// cache reads the file once, because the service drops it from the page cache when it starts. Like the service, which
// reads it ahead, it leaves single pages in the page cache. After sequential reads the kernel counted 50 to 150 times
// the bytes for a create with a random id, which also became slower, probably because it caches groups of pages then.
func (db *database) cache() error {
	f, err := os.Open(db.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, f)
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// fill stores n plants through the engine, in large batches.
func (b *bench) fill(db *database, n int64, id func(i, n int64) int64) error {
	const batch = 16 << 10
	st, err := sqlite.Open(b.ctx, db.path)
	if err != nil {
		return err
	}
	defer st.Close()
	name, tag := measure.Name(10), measure.Tag
	records := make([]plant.Record, 0, batch)
	for db.count < n {
		records = records[:0]
		for i := db.count; i < min(db.count+batch, n); i++ {
			p := plant.Plant{ID: id(i, n), Content: plant.Content{Name: name, Tag: &tag}}
			records = append(records, plant.Record{Store: token.DefaultStore, Plant: p})
		}
		if _, err := st.CreateBatch(b.ctx, records); err != nil {
			return err
		}
		if err := b.ctx.Err(); err != nil {
			return err
		}
		if db.count += int64(len(records)); db.count/batch%64 == 0 {
			b.progress.say("%d/%d storing %s of %s plants",
				b.done, b.planned, thousands(float64(db.count)), thousands(float64(n)))
		}
	}
	return nil
}

const spotChecks = 20

// add records what a run has stored.
func (db *database) add(report measure.Report, r *row) {
	db.count += report.OK
	db.sent += report.Sent
	tag := measure.Tag
	for i := range int64(spotChecks) {
		sequence := report.First + i*max(0, report.Sent-1)/(spotChecks-1)
		p := plant.Content{Name: measure.Name(r.nameBytes), Tag: &tag}
		db.spots = append(db.spots, plant.Plant{ID: measure.ID(sequence, r.scattered), Content: p})
	}
}

// verify opens the file again and checks that it contains every created plant.
func (db *database) verify(ctx context.Context) error {
	st, err := sqlite.Open(ctx, db.path)
	if err != nil {
		return err
	}
	defer st.Close()
	n, err := st.Count(ctx, token.DefaultStore)
	if err != nil {
		return err
	}
	if err := db.check(n); err != nil {
		return err
	}
	for _, want := range db.spots {
		got, err := st.Get(ctx, token.DefaultStore, want.ID)
		if err != nil {
			return fault(fmt.Sprintf("the create of plant %d returned 200, and it cannot be read: %v", want.ID, err))
		}
		if got.ID != want.ID || !got.Equal(want.Content) {
			return fault(fmt.Sprintf("plant %d differs from what was sent", want.ID))
		}
	}
	return nil
}

// check compares the number of plants that were found with the responses to creates.
func (db *database) check(n int64) error {
	if n < db.count || n > db.count+db.maybe {
		return fault(fmt.Sprintf("the database contains %d plants; %d creates returned 200, and %d did not",
			n, db.count, db.maybe))
	}
	return nil
}

// countIn returns a function that counts the plants with a name in an SQLite file.
func countIn(ctx context.Context, path string) func(name string) (int64, error) {
	return func(name string) (n int64, err error) {
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			return 0, err
		}
		defer db.Close()
		row := db.QueryRowContext(ctx, "SELECT count(*) FROM plants WHERE name = ? AND tag = ?", name, measure.Tag)
		return n, row.Scan(&n)
	}
}
