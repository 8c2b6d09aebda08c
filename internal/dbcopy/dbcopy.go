// Package dbcopy copies plants and tokens from one database to another, on any engine, and compares both at the end.
//
// Creating a plant that exists changes nothing, so a copy that was interrupted continues when it is started again.
// Tokens are copied last: until the plants are compared, the target refuses the clients of the source.
package dbcopy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// Report is the result of a copy that succeeded.
type Report struct {
	Stores  []Store `json:"stores"`  // of both databases, which are equal
	Plants  int64   `json:"plants"`  // of all stores
	Created int64   `json:"created"` // plants that this run has created in the target
	Tokens  int     `json:"tokens"`  // of the source, all of which the target has
}

// Store is the content of one store. Its hash is the same on every engine: the SHA-256, in hexadecimal, of the store as
// NDJSON, in the order of the ids and without a space that JSON does not need.
type Store struct {
	Name   string `json:"store"`
	Plants int64  `json:"plants"`
	Hash   string `json:"sha256"`
}

// Copy copies all plants and tokens, but no sandboxes. It returns nil only if the target has every plant and token of
// the source, and no other plant or valid token. Its errors are sentences for an operator. When ctx ends, it completes
// the writes in flight. Plants are counted in done, first when they are copied and then when they are compared.
func Copy(ctx context.Context, from, to storage.Storage, done *atomic.Int64) (report Report, err error) {
	c := copier{from: from, to: to, done: done}
	names, err := stores(ctx, from)
	if err != nil {
		return report, fmt.Errorf("read the source: %w", err)
	}
	if err := c.checkTarget(ctx, names); err != nil {
		return report, err
	}
	if err := c.copyPlants(ctx, names); err != nil {
		return report, fmt.Errorf("%w; run the same command again to continue", err)
	}
	report.Created = c.created.Load()
	for _, name := range names {
		s, err := c.compare(ctx, name)
		if err != nil {
			return report, err
		}
		report.Stores = append(report.Stores, s)
		report.Plants += s.Plants
	}
	report.Tokens, err = c.copyTokens(ctx, true)
	return report, err
}

// stores returns the names of the stores of a database that are no sandboxes.
func stores(ctx context.Context, db storage.Storage) ([]string, error) {
	names, err := db.Stores(ctx)
	return slices.DeleteFunc(names, token.IsSandbox), err
}

type copier struct {
	from, to storage.Storage
	done     *atomic.Int64
	created  atomic.Int64
}

// samples is how many plants of each store of the target are looked up in the source before anything is written.
const samples = 100

// checkTarget returns an error if the target is not empty and not an earlier copy of the source.
func (c *copier) checkTarget(ctx context.Context, names []string) error {
	if _, err := c.copyTokens(ctx, false); err != nil {
		return err
	}
	targets, err := stores(ctx, c.to)
	if err != nil {
		return fmt.Errorf("read the target: %w", err)
	}
	for _, name := range targets {
		if !slices.Contains(names, name) {
			return fmt.Errorf("the target has plants in store %s, and the source has none; copy to an empty database", name)
		}
		page, err := c.to.List(ctx, name, nil, samples)
		if err != nil {
			return fmt.Errorf("read the target: %w", err)
		}
		for _, there := range page {
			here, err := c.from.Get(ctx, name, there.ID)
			if err != nil && !errors.Is(err, plant.ErrNotFound) {
				return fmt.Errorf("read the source: %w", err)
			}
			if err != nil || !here.Equal(there.Content) {
				return other(there.ID, name)
			}
		}
	}
	return nil
}

func other(id int64, name string) error {
	return fmt.Errorf("the target has a plant %d in store %s that the source does not have; "+
		"copy to an empty database", id, name)
}

// copyPlants creates all plants of the source in the target, with a batch for each lane in flight.
func (c *copier) copyPlants(ctx context.Context, names []string) error {
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(c.to.Lanes())
	for _, name := range names {
		for page, err := range pages(ctx, c.from, name) {
			if err != nil {
				return errors.Join(writes.Wait(), fmt.Errorf("read the source: %w", err))
			}
			for _, batch := range c.byShard(name, page) {
				writes.Go(func() error { return c.write(ctx, batch) })
			}
		}
	}
	return writes.Wait()
}

// byShard returns the plants of a page in batches of one shard each, which are stored fastest.
func (c *copier) byShard(name string, page []plant.Plant) map[int][]plant.Record {
	batches := map[int][]plant.Record{}
	for _, p := range page {
		r := plant.Record{Store: name, Plant: p}
		_, shard := c.to.Shard(r.Key())
		batches[shard] = append(batches[shard], r)
	}
	return batches
}

func (c *copier) write(ctx context.Context, batch []plant.Record) error {
	outcomes, err := c.to.CreateBatch(ctx, batch)
	if err != nil {
		return fmt.Errorf("write to the target: %w", err)
	}
	for i, outcome := range outcomes {
		switch outcome {
		case plant.Created:
			c.created.Add(1)
		case plant.Taken:
			return other(batch[i].ID, batch[i].Store)
		}
	}
	c.done.Add(int64(len(batch)))
	return nil
}

// compare returns what a store has in both databases, or an error if they differ.
func (c *copier) compare(ctx context.Context, name string) (Store, error) {
	var both [2]Store
	var reads errgroup.Group
	for i, db := range []storage.Storage{c.from, c.to} {
		reads.Go(func() (err error) { both[i], err = c.summarize(ctx, db, name); return err })
	}
	if err := reads.Wait(); err != nil {
		return Store{}, fmt.Errorf("compare store %s: %w", name, err)
	}
	if both[0] != both[1] {
		return Store{}, fmt.Errorf("store %s differs: %d plants in the source, %d in the target; stop everything that "+
			"writes to either database, then copy to an empty database", name, both[0].Plants, both[1].Plants)
	}
	return both[0], nil
}

func (c *copier) summarize(ctx context.Context, db storage.Storage, name string) (Store, error) {
	s, hash, line := Store{Name: name}, sha256.New(), []byte(nil)
	for page, err := range pages(ctx, db, name) {
		if err != nil {
			return s, err
		}
		for _, p := range page {
			line = append(p.AppendJSON(line[:0]), '\n')
			hash.Write(line)
		}
		s.Plants += int64(len(page))
		if db == c.from {
			c.done.Add(int64(len(page)))
		}
	}
	s.Hash = hex.EncodeToString(hash.Sum(nil))
	return s, nil
}

// pageSize is how many plants a page has at most. It ends early if they are large: see storage.PageBytes.
const pageSize = 4096

// pages returns the plants of a store in the order of their ids.
func pages(ctx context.Context, db storage.Storage, name string) iter.Seq2[[]plant.Plant, error] {
	return func(yield func([]plant.Plant, error) bool) {
		var after *int64
		for {
			page, err := db.List(ctx, name, after, pageSize)
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) == 0 || !yield(page, nil) {
				return
			}
			after = &page[len(page)-1].ID
		}
	}
}
