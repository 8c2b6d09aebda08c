package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"plantstore/bench/measure"
)

// records is a data folder of PocketBase with the token of an account.
type records struct{ dir, token string }

// pocketBase prepares a data folder; the program itself creates the collection and the account. Rows that read share a
// folder with plants, and those that also write get a copy.
func (b *bench) pocketBase(r *row) (*contender, error) {
	var data *records
	var err error
	first, clean := int64(0), func() {}
	if r.request == create {
		data, err = b.newRecords(r.kind == pocketBaseQuiet, 0)
	} else if b.records == nil {
		b.records, err = b.newRecords(false, b.stored)
	}
	if err != nil {
		return nil, err
	}
	if r.request != create {
		data, first = b.records, b.stored
	}
	if r.request != create && r.writes() {
		if data, err = b.copyRecords(data); err != nil {
			return nil, err
		}
	}
	if r.writes() {
		clean = func() { os.RemoveAll(data.dir) }
	}
	return &contender{
		program: b.bin("pocketbase"), args: []string{"--dir", data.dir}, api: pocketBaseAPI, token: data.token,
		first: first, clean: clean,
		verify: func(ctx context.Context, report measure.Report) error {
			if !r.writes() {
				return nil
			}
			return r.checkStored(report, b.stored, countIn(ctx, filepath.Join(data.dir, "data.db")))
		},
	}, nil
}

// newRecords creates a data folder with n plants. The id of a record is the last 15 digits of that of its plant.
func (b *bench) newRecords(quiet bool, n int64) (*records, error) {
	dir, err := os.MkdirTemp(b.dir, "pb")
	if err != nil {
		return nil, err
	}
	token, err := command(b.ctx, nil, nil, b.bin("pocketbase"),
		"--dir", dir, fmt.Sprintf("--quiet=%v", quiet), "--prepare")
	if err != nil {
		return nil, err
	}
	data := &records{dir, strings.TrimSpace(string(token))}
	if n == 0 {
		return data, nil
	}
	b.progress.say("%d/%d storing %s plants in PocketBase", b.done, b.planned, thousands(float64(n)))
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "data.db"))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	const fill = `WITH RECURSIVE numbers(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i + 1 < ?)
		INSERT INTO plants (id, plant_id, name, tag) SELECT printf('%015d', i), ? + i, ?, ? FROM numbers`
	_, err = db.ExecContext(b.ctx, fill, n, measure.ID(0, false), measure.Name(10), measure.Tag)
	return data, err
}

// copyRecords copies a data folder that no process has open.
func (b *bench) copyRecords(data *records) (*records, error) {
	dir, err := os.MkdirTemp(b.dir, "pb")
	if err != nil {
		return nil, err
	}
	return &records{dir, data.token}, os.CopyFS(dir, os.DirFS(data.dir))
}
