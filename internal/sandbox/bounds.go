package sandbox

import (
	"context"
	"errors"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/share"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	maxPlants   = 1000      // in a sandbox
	maxBytes    = 1 << 20   // of the names and tags in a sandbox
	maxAllBytes = 512 << 20 // of the names and tags in all sandboxes
	minFree     = 1 << 30   // free bytes on the disk that a new sandbox needs

	maxAddresses = 10_000 // whose new sandboxes are counted
	maxAdding    = 256    // waiting requests for new sandboxes
	maxAddingOf  = 32     // of these, from one address
	maxChanging  = 64     // waiting resets and removes, one of each sandbox
	changeRest   = 2      // the pause after a change, in durations of that change

	unusedAfter = 5 * time.Minute // a sandbox that was not used after this may be replaced
)

// change runs a change of sandboxes, one at a time.
func (s *Sandboxes) change(waiting *share.Waiters[string], owner string, do func() error) error {
	leave, ok := waiting.Enter(owner)
	if !ok && waiting == &s.adding {
		return httpapi.Failf(storage.ErrBusy, "too many sandboxes are being created; retry later")
	} else if !ok {
		return &rate.Exceeded{Why: httpapi.ErrWaiting, Wait: time.Second}
	}
	defer leave()
	s.slot <- struct{}{}
	started := time.Now()
	defer func() { time.AfterFunc(changeRest*time.Since(started), func() { <-s.slot }) }()
	return do()
}

// makeSpace returns an error if there is no space for another sandbox. If there are too many, it ends the oldest one
// that was not used after its first minutes.
func (s *Sandboxes) makeSpace(ctx context.Context) error {
	if free := s.storage.Stats().Free; s.cfg.Rate.Count > 0 && free >= 0 && free < minFree {
		return httpapi.ErrNoSandbox
	}
	s.mu.Lock()
	now, live, full := time.Now(), 0, s.bytes >= maxAllBytes
	var oldest storage.Sandbox
	for _, b := range s.boxes {
		if !b.Expires.After(now) {
			continue
		}
		live++
		end := b.Created.Add(unusedAfter)
		unused := now.After(end) && !b.used.After(end) && !b.Used.After(end)
		if unused && (oldest.Store == "" || b.Created.Before(oldest.Created)) {
			oldest = b.Sandbox
		}
	}
	s.mu.Unlock()
	switch {
	case full || live >= s.cfg.Max && oldest.Store == "":
		return httpapi.ErrNoSandbox
	case live >= s.cfg.Max:
		return s.end(ctx, oldest.Store)
	}
	return nil
}

// Creates returns create with the bounds of sandboxes. They may be exceeded by requests in flight.
func (s *Sandboxes) Creates(create httpapi.Create) httpapi.Create {
	return func(ctx context.Context, r plant.Record) (plant.Outcome, error) {
		if !token.IsSandbox(r.Store) {
			return create(ctx, r)
		}
		if err := s.fits(r.Store, 1, r.Size()); err != nil {
			_, absent := s.storage.Get(ctx, r.Store, r.ID)
			if absent != nil || errors.Is(err, token.ErrExpired) { // a repeated create stores nothing
				return 0, err
			}
		}
		outcome, err := create(ctx, r)
		if outcome == plant.Created || errors.Is(err, storage.ErrUnknown) {
			s.count(r.Store, 1, r.Size())
		}
		return outcome, err
	}
}

// Edits returns edit with the bounds of sandboxes. It changes exactly the plant whose size it counts.
func (s *Sandboxes) Edits(edit httpapi.Edit) httpapi.Edit {
	return func(ctx context.Context, e plant.Edit) (plant.Outcome, error) {
		if !token.IsSandbox(e.Store) {
			return edit(ctx, e)
		}
		for unconditional := e.Seen == nil; ; {
			if unconditional {
				before, err := s.storage.Get(ctx, e.Store, e.ID)
				if errors.Is(err, plant.ErrNotFound) {
					return plant.Absent, nil
				} else if err != nil {
					return 0, err
				}
				e.Seen = &before.Content
			}
			plants, bytes := -1, -e.Seen.Size()
			if e.To != nil {
				plants, bytes = 0, e.To.Size()-e.Seen.Size()
				err := s.fits(e.Store, 0, bytes)
				if err != nil && (bytes > 0 || errors.Is(err, token.ErrExpired)) {
					return 0, err
				}
			}
			outcome, err := edit(ctx, e)
			if outcome == plant.Replaced || outcome == plant.Removed {
				s.count(e.Store, plants, bytes)
			}
			if !unconditional || outcome != plant.Changed {
				return outcome, err
			}
		}
	}
}

// fits returns an error if a sandbox has no space for more plants and bytes.
func (s *Sandboxes) fits(store string, plants, bytes int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.box(store)
	switch {
	case !b.Expires.After(time.Now()): // since the request was authenticated
		return token.ErrExpired
	case b.Plants+b.plants+int64(plants) > maxPlants:
		return httpapi.Failf(httpapi.ErrSandboxFull,
			"the sandbox has %d plants, the most that it may have; remove some, or reset it", maxPlants)
	case b.Bytes+b.bytes+int64(bytes) > maxBytes:
		return httpapi.Failf(httpapi.ErrSandboxFull,
			"the names and tags of the sandbox would exceed %d bytes; remove plants, or reset it", maxBytes)
	case s.bytes+int64(bytes) > maxAllBytes:
		return httpapi.ErrNoSandbox
	}
	return nil
}

func (s *Sandboxes) count(store string, plants, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(s.box(store), int64(plants), int64(bytes))
}

// add counts what was added to a sandbox. The caller holds mu.
func (s *Sandboxes) add(b *box, plants, bytes int64) {
	b.plants += plants
	b.bytes += bytes
	s.bytes += bytes
}
