package sandbox

import (
	"context"
	"log/slog"
	"time"

	"plantstore/internal/storage"
)

const (
	clearRest = 15              // the pause after a write, in durations of that write
	grace     = time.Minute     // after the end of a sandbox: a request in flight may still store a plant
	stopTime  = 5 * time.Second // for the changes of sandboxes when the service stops

	every     = time.Second      // sandboxes are read again
	everyIdle = 10 * time.Second // in a process that creates none
	writeUses = 5                // reads after which uses are written
)

// Run removes sandboxes that have expired, in small steps, and keeps what this process knows of the others up to date,
// until ctx ends. Every process on a database runs it, also one that creates no sandboxes.
func (s *Sandboxes) Run(ctx context.Context, log *slog.Logger) {
	pause := every
	if s.cfg.Max == 0 {
		pause = everyIdle
	}
	failed := false
	for n := 0; ; n++ {
		started := time.Now()
		expired, err := s.refresh(ctx)
		if err == nil && n%writeUses == 0 {
			err = s.writeChanges(ctx)
		}
		for _, row := range expired {
			if err == nil {
				err = s.remove(ctx, row, started.Add(every))
			}
		}
		if err != nil && ctx.Err() == nil && !failed {
			log.Warn("sandboxes can't be read or removed now", "reason", err.Error())
		}
		failed = err != nil
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
			defer cancel()
			s.writeChanges(ctx)
			return
		}
	}
}

// refresh reads the sandboxes, and returns those that have expired.
func (s *Sandboxes) refresh(ctx context.Context) (expired []storage.Sandbox, err error) {
	started := time.Now()
	rows, err := s.storage.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make(map[string]bool, len(rows))
	s.bytes = 0
	for _, row := range rows {
		known[row.Store] = true
		b := s.boxes[row.Store]
		if b == nil {
			b = new(box)
			s.boxes[row.Store] = b
		}
		b.Sandbox = row
		s.bytes += row.Bytes + b.bytes
		if !row.Expires.After(started) {
			s.drop(b)
			expired = append(expired, row)
		}
	}
	for store, b := range s.boxes {
		if !known[store] && b.used.Before(started) {
			s.drop(b)
			delete(s.boxes, store)
		}
	}
	return expired, nil
}

// writeChanges stores the uses and the sizes of sandboxes that have changed.
func (s *Sandboxes) writeChanges(ctx context.Context) error {
	s.mu.Lock()
	var changes []storage.Sandbox
	for _, b := range s.boxes {
		first := b.Created.Add(unusedAfter) // after which a use is seen at once by other processes
		isUsed := b.used.After(b.Used.Add(time.Minute)) || b.used.After(first) && !b.Used.After(first)
		if b.Store != "" && (isUsed || b.plants != 0 || b.bytes != 0) {
			change := b.Sandbox
			change.Used, change.Plants, change.Bytes = b.used, b.plants, b.bytes
			changes = append(changes, change)
		}
	}
	s.mu.Unlock()
	if len(changes) == 0 {
		return nil
	}
	if err := s.storage.ChangeSandboxes(ctx, changes); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, change := range changes {
		if b := s.boxes[change.Store]; b != nil {
			b.Plants, b.Bytes, b.Used = b.Plants+change.Plants, b.Bytes+change.Bytes, change.Used
			b.plants, b.bytes = b.plants-change.Plants, b.bytes-change.Bytes
		}
	}
	return nil
}

// remove removes plants of an expired sandbox until a time, and the sandbox once it has none.
func (s *Sandboxes) remove(ctx context.Context, row storage.Sandbox, until time.Time) error {
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := s.clear(limited, row.Store, clearRest)
	switch {
	case err == nil && time.Since(row.Expires) > grace:
		return s.storage.ForgetSandbox(ctx, row.Store)
	case err != nil && err == limited.Err(): // the rest is removed later
		return ctx.Err()
	}
	return err
}
