package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver that reads the file

	"plantstore/internal/plant"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/testkit/measure"
	"plantstore/internal/token"
)

// contender is a program to start and the requests that it accepts.
type contender struct {
	program string
	args    []string
	path    string
	idName  string
	token   string
	first   int64 // first sequence number
	clean   func()
	verify  func(context.Context, measure.Report) error
}

// contender prepares a row: its own database, with a token in it.
func (b *bench) contender(r *row) (*contender, error) {
	switch r.kind {
	case pocketBase, pocketBaseQuiet:
		return b.pocketBase(r)
	case postgresProduct:
		return b.postgres.contender(b.ctx, b.bin("plantstore"))
	case citus:
		return b.cluster.contender(b.ctx, b.bin("plantstore"), r), nil
	case bare:
		return b.bare(), nil
	}
	db, err := b.database(r.full)
	if err != nil {
		return nil, err
	}
	c := &contender{path: "/plants", idName: "id", token: db.token, first: db.sent, clean: db.clean}
	c.verify = func(ctx context.Context, report measure.Report) error {
		if r.kind == noStore {
			return nil
		}
		db.add(report, r)
		if r.full {
			return nil // counting takes seconds, so it happens once, at the end
		}
		return db.verify(ctx)
	}
	c.program, c.args = b.bin("variant"), []string{"--db", db.path}
	switch r.kind {
	case product:
		c.program, c.args = b.bin("plantstore"), serveArgs(db.path)
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
		path: "/plants", idName: "id", token: token, clean: func() {},
		verify: func(context.Context, measure.Report) error { return nil },
	}
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
	spots []plant.New
	clean func()
}

// database creates an empty database with a token, or returns the one with many plants.
func (b *bench) database(full bool) (*database, error) {
	if full && b.full != nil {
		return b.full, nil
	}
	dir, err := os.MkdirTemp(b.dir, "db")
	if err != nil {
		return nil, err
	}
	db := &database{path: filepath.Join(dir, "plants.db"), clean: func() { os.RemoveAll(dir) }}
	issued, err := command(b.ctx, nil, nil, b.bin("plantstore"), "token", "issue", "--name", "bench", "--db", db.path)
	if err != nil {
		return nil, err
	}
	db.token = strings.TrimSpace(string(issued))
	if full {
		db.clean = func() {}
		if err := b.fill(db); err != nil {
			return nil, err
		}
		b.full = db
	}
	return db, nil
}

// fill stores many plants through the engine, in large batches.
func (b *bench) fill(db *database) error {
	const batch = 16 << 10
	st, err := sqlite.Open(b.ctx, db.path)
	if err != nil {
		return err
	}
	defer st.Close()
	name, tag := measure.Name(10), measure.Tag
	records := make([]plant.Record, 0, batch)
	for db.count < b.preload {
		records = records[:0]
		for i := db.count; i < min(db.count+batch, b.preload); i++ {
			p := plant.New{ID: measure.SpreadID(i, b.preload), Plant: plant.Plant{Name: name, Tag: &tag}}
			records = append(records, plant.Record{Store: token.DefaultStore, New: p})
		}
		if _, err := st.CreateBatch(b.ctx, records); err != nil {
			return err
		}
		if err := b.ctx.Err(); err != nil {
			return err
		}
		if db.count += int64(len(records)); db.count/batch%64 == 0 {
			b.progress.say("%d/%d storing %s of %s plants",
				b.done, b.planned, thousands(float64(db.count)), thousands(float64(b.preload)))
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
		p := plant.Plant{Name: measure.Name(r.nameBytes), Tag: &tag}
		db.spots = append(db.spots, plant.New{ID: measure.ID(sequence, r.scattered), Plant: p})
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
	if n != db.count {
		return fault(fmt.Sprintf("the database contains %d plants, and %d creates returned 200", n, db.count))
	}
	for _, want := range db.spots {
		got, err := st.Get(ctx, token.DefaultStore, want.ID)
		if err != nil {
			return fault(fmt.Sprintf("the create of plant %d returned 200, and it cannot be read: %v", want.ID, err))
		}
		if got.ID != want.ID || !got.Equal(want.Plant) {
			return fault(fmt.Sprintf("plant %d differs from what was sent", want.ID))
		}
	}
	return nil
}

// pocketBase prepares a data folder; the program itself creates the collection and the account.
func (b *bench) pocketBase(r *row) (*contender, error) {
	dir, err := os.MkdirTemp(b.dir, "pb")
	if err != nil {
		return nil, err
	}
	args := []string{"--dir", dir, fmt.Sprintf("--quiet=%v", r.kind == pocketBaseQuiet)}
	credential, err := command(b.ctx, nil, nil, b.bin("pocketbase"), append(args, "--prepare")...)
	if err != nil {
		return nil, err
	}
	return &contender{
		program: b.bin("pocketbase"), args: args, path: "/api/collections/plants/records", idName: "plant_id",
		token: strings.TrimSpace(string(credential)), clean: func() { os.RemoveAll(dir) },
		verify: func(ctx context.Context, report measure.Report) error {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "data.db"))
			if err != nil {
				return err
			}
			defer db.Close()
			var n int64
			count := db.QueryRowContext(ctx, "SELECT count(*) FROM plants WHERE name = ? AND tag = ?",
				measure.Name(r.nameBytes), measure.Tag)
			if err := count.Scan(&n); err != nil {
				return err
			}
			if n != report.OK {
				return fault(fmt.Sprintf("the database contains %d plants, and %d creates returned 200", n, report.OK))
			}
			return nil
		},
	}, nil
}
