package transfer

import (
	"cmp"
	"context"
	"fmt"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

// compare calls each for every id that a store has in either database, in the order of the ids: with both plants, or
// with nil for one that does not exist. Unless whole is set, it ends with the target.
//
// Plants may be created in the target meanwhile, with ids up to the last call of each: the target has been read past
// them.
func compare(
	ctx context.Context, from, to Source, name string, whole bool, each func(source, target *plant.New) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	sources, targets := read(ctx, from, "source", name), read(ctx, to, "target", name)
	defer func() {
		cancel(nil)
		sources.wait()
		targets.wait()
	}()
	source, target := sources.next(), targets.next()
	for {
		if sources.err != nil || targets.err != nil {
			return cmp.Or(sources.err, targets.err)
		}
		var err error
		switch {
		case source == nil && target == nil, target == nil && !whole:
			return nil
		case target == nil || source != nil && source.ID < target.ID:
			err = each(source, nil)
			source = sources.next()
		case source == nil || target.ID < source.ID:
			err = each(nil, target)
			target = targets.next()
		default:
			err = each(source, target)
			source, target = sources.next(), targets.next()
		}
		if err != nil {
			return err
		}
	}
}

// reader reads the plants of a store in the order of their ids, some pages ahead.
type reader struct {
	pages   chan []plant.New
	current []plant.New
	failure error // written before pages is closed
	err     error // set when next returns nil because of a failure
}

// The number of plants in a page. PostgreSQL sends all plants of a page even if it ends early, so the limit follows
// their size.
const (
	minPage   = 16
	maxPage   = 4096
	pageAhead = 4
)

// read starts to read a store.
func read(ctx context.Context, from Source, which, name string) *reader {
	r := &reader{pages: make(chan []plant.New, pageAhead)}
	go func() {
		defer close(r.pages)
		if err := r.readPages(ctx, from, name); err != nil {
			r.failure = fmt.Errorf("read store %s of the %s: %w", name, which, err)
		}
	}()
	return r
}

func (r *reader) readPages(ctx context.Context, from Source, name string) error {
	var after *int64
	for limit := maxPage / 4; ; {
		page, err := from.List(ctx, name, after, limit)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || len(page) == 0 {
			return err
		}
		select {
		case r.pages <- page:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if len(page) < limit {
			if size(page) < store.PageBytes {
				return nil // no plant is left
			}
			limit = max(minPage, 2*len(page))
		} else {
			limit = min(maxPage, 2*limit)
		}
		after = &page[len(page)-1].ID
	}
}

func size(page []plant.New) (n int) {
	for _, p := range page {
		n += p.Size()
	}
	return n
}

// next returns the next plant, or nil at the end or if r.err is set.
func (r *reader) next() *plant.New {
	if len(r.current) == 0 {
		page, ok := <-r.pages
		if !ok {
			r.err = r.failure
			return nil
		}
		r.current = page
	}
	p := &r.current[0]
	r.current = r.current[1:]
	return p
}

// wait returns when the reader has ended, which the end of its context causes.
func (r *reader) wait() {
	for range r.pages {
	}
}
