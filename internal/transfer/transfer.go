// Package transfer copies plants and tokens from one database to another, on any engine, and verifies the copy.
//
// A copy compares both databases in the order of the ids and writes what the target lacks, so one that was interrupted
// continues when it is started again. At the end it reads both databases once more. Tokens are copied last: until the
// plants are verified, the target refuses the clients of the source.
package transfer

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/token"
)

// Source is what a copy reads: see package store for what the methods promise.
type Source interface {
	Stores(ctx context.Context) ([]string, error)
	List(ctx context.Context, store string, after *int64, limit int) ([]plant.New, error)
	Count(ctx context.Context, store string) (int64, error)
	Tokens(ctx context.Context) ([]token.Token, error)
}

// Target is what a copy writes to.
type Target interface {
	Source
	CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error)
	EditBatch(ctx context.Context, edits []plant.Edit) ([]plant.Outcome, error)
	AddToken(ctx context.Context, t token.Token) error
	RevokeToken(ctx context.Context, name string, at time.Time) error
	Shard(key plant.Key) (server, shard int)
	Lanes() int // for each server
}

// Others is what to do with other plants: those that only the target has, and those that it has with a different name
// or tag.
type Others string

const (
	Refuse    Others = "refuse"    // fail before anything is written
	Keep      Others = "keep"      // keep those that only the target has, and refuse the others
	Overwrite Others = "overwrite" // remove or replace them
)

// Valid reports whether o is one of the constants.
func (o Others) Valid() bool { return o == Refuse || o == Keep || o == Overwrite }

// Options control a copy.
type Options struct {
	Others   Others
	Progress *Progress
}

// Report is the result of a copy that succeeded: every store of the source with its plants, which the target has too.
type Report struct {
	Stores  []Store
	Created int64 // plants that this run has created in the target
	Tokens  int   // of the source, all of which the target has
}

// Plants is the number of plants in all stores.
func (r Report) Plants() (n int64) {
	for _, s := range r.Stores {
		n += s.Plants
	}
	return n
}

// Store is the content of one store.
type Store struct {
	Name   string
	Plants int64
	Hash   Hash
	Others int64 // plants that only the target has: see Keep
}

// Copy copies all plants and tokens. It returns nil only if the target has every plant and every token of the source.
// Its errors are sentences for an operator. When ctx ends, it completes the writes in flight and returns its cause.
func Copy(ctx context.Context, from Source, to Target, opts Options) (Report, error) {
	c := copier{from: from, to: to, target: to, opts: opts}
	for _, step := range []func(context.Context) error{
		c.checkTokens, c.checkOthers, c.count, c.copyPlants, c.verify, c.copyTokens, c.verifyTokens,
	} {
		if err := step(ctx); err != nil {
			return Report{}, err
		}
	}
	return c.report, nil
}

// Check writes nothing and returns nil only if the target has every plant and every token of the source and, unless
// opts.Others is Keep, no other plant.
func Check(ctx context.Context, from, to Source, opts Options) (Report, error) {
	c := copier{from: from, to: to, opts: opts}
	for _, step := range []func(context.Context) error{c.count, c.verify, c.verifyTokens} {
		if err := step(ctx); err != nil {
			return Report{}, err
		}
	}
	return c.report, nil
}

type copier struct {
	from, to Source
	target   Target // to, unless nothing is written
	opts     Options
	total    int64 // plants of the source, or 0 if they can't be counted
	report   Report
}

// checkOthers returns an error if the target has other plants. It reads the source only as far as the target goes.
func (c *copier) checkOthers(ctx context.Context) error {
	if c.opts.Others == Overwrite {
		return nil
	}
	c.opts.Progress.start("checking", 0)
	names, err := c.to.Stores(ctx)
	if err != nil {
		return fmt.Errorf("read the target: %w", err)
	}
	for _, name := range names {
		err := compare(ctx, c.from, c.to, name, false, func(source, target *plant.New) error {
			c.opts.Progress.add()
			switch {
			case target == nil, source == nil && c.opts.Others == Keep:
				return nil
			case source == nil:
				return fmt.Errorf("the target has other plants: the source has no plant %d in store %s; copy to an empty "+
					"database, or use --others keep to keep such plants, or --others overwrite to remove them", target.ID, name)
			case !source.Equal(target.Plant):
				return fmt.Errorf("the target has other plants: plant %d of store %s has a different name or tag there; "+
					"copy to an empty database, or use --others overwrite to replace such plants", target.ID, name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// count sets the total, which is only for the progress: counting a large store may take too long.
func (c *copier) count(ctx context.Context) error {
	c.opts.Progress.start("counting", 0)
	names, err := c.from.Stores(ctx)
	if err != nil {
		return fmt.Errorf("read the source: %w", err)
	}
	for _, name := range names {
		n, err := c.from.Count(ctx, name)
		if err != nil {
			c.total = 0
			return context.Cause(ctx)
		}
		c.total += n
	}
	return nil
}

func (c *copier) copyPlants(ctx context.Context) (err error) {
	c.opts.Progress.start("copying", c.total)
	names, err := c.stores(ctx, c.opts.Others == Overwrite)
	if err != nil {
		return err
	}
	w := newWriter(ctx, c.target)
	defer func() {
		if writeErr := w.close(); writeErr != nil {
			err = writeErr // the other error is a consequence
		}
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w; run the same command again to continue", err)
		}
		c.report.Created = w.created.Load()
	}()
	for _, name := range names {
		err := compare(w.ctx, c.from, c.to, name, true, func(source, target *plant.New) error {
			if source != nil {
				c.opts.Progress.add()
			}
			return c.transfer(w, name, source, target)
		})
		if err != nil {
			return err
		}
	}
	return w.flush()
}

// transfer makes the target have the plant of the source. Either plant may be nil.
func (c *copier) transfer(w *writer, name string, source, target *plant.New) error {
	switch {
	case target == nil:
		return w.create(plant.Record{Store: name, New: *source})
	case c.opts.Others != Overwrite: // checkOthers has found no other plant that matters, and verify reports later ones
		return nil
	case source == nil:
		return w.edit(plant.Edit{Key: plant.Key{Store: name, ID: target.ID}})
	case !source.Equal(target.Plant):
		to := source.Plant
		return w.edit(plant.Edit{Key: plant.Key{Store: name, ID: source.ID}, To: &to})
	}
	return nil
}

// stores returns the names of the stores of the source and, if both is set, those of the target.
func (c *copier) stores(ctx context.Context, both bool) ([]string, error) {
	names, err := c.from.Stores(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the source: %w", err)
	}
	if both {
		others, err := c.to.Stores(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the target: %w", err)
		}
		names = append(names, others...)
		slices.Sort(names)
	}
	return slices.Compact(names), nil
}

// verify reads both databases again, reports what they contain, and returns an error if a store differs.
func (c *copier) verify(ctx context.Context) error {
	c.opts.Progress.start("verifying", c.total)
	names, err := c.stores(ctx, true)
	if err != nil {
		return err
	}
	for _, name := range names {
		s, err := c.verifyStore(ctx, name)
		if err != nil {
			return err
		}
		if s.Plants > 0 {
			c.report.Stores = append(c.report.Stores, s)
		}
	}
	return nil
}

func (c *copier) verifyStore(ctx context.Context, name string) (Store, error) {
	source, target := newHasher(), newHasher()
	s := Store{Name: name}
	difference := ""
	err := compare(ctx, c.from, c.to, name, true, func(a, b *plant.New) error {
		if a != nil {
			c.opts.Progress.add()
			source.add(a)
		}
		if a == nil && c.opts.Others == Keep {
			s.Others++
			return nil
		}
		if b != nil {
			target.add(b)
		}
		if difference == "" {
			difference = differenceOf(a, b)
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	s.Plants, s.Hash = source.plants, source.sum()
	if difference != "" || target.sum() != s.Hash {
		err = fmt.Errorf("store %s differs: %s (%d plants in the source, %d in the target)",
			name, difference, source.plants, target.plants)
		if c.target != nil { // it was equal when its plants were copied
			err = fmt.Errorf("%w; stop everything that writes to either database, then run the same command again", err)
		}
		return s, err
	}
	return s, nil
}

// differenceOf describes how two plants differ, or returns "" if they are equal. One of them may be nil.
func differenceOf(source, target *plant.New) string {
	switch {
	case target == nil:
		return fmt.Sprintf("plant %d is missing in the target", source.ID)
	case source == nil:
		return fmt.Sprintf("plant %d is not in the source", target.ID)
	case !source.Equal(target.Plant):
		return fmt.Sprintf("plant %d has a different name or tag", source.ID)
	}
	return ""
}

// Progress is how far a copy is. It can be read while the copy runs. A nil Progress does nothing.
type Progress struct {
	phase atomic.Pointer[Phase]
	done  atomic.Int64
}

// Phase is a part of a copy.
type Phase struct {
	Name  string
	Total int64 // plants; 0 if unknown
}

// Now returns the current phase and how many plants it has processed.
func (p *Progress) Now() (Phase, int64) {
	phase := p.phase.Load()
	if phase == nil {
		return Phase{Name: "opening"}, 0
	}
	return *phase, p.done.Load()
}

func (p *Progress) start(name string, total int64) {
	if p != nil {
		p.done.Store(0)
		p.phase.Store(&Phase{name, total})
	}
}

func (p *Progress) add() {
	if p != nil {
		p.done.Add(1)
	}
}
