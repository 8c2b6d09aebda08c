package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const repeatPeriod = time.Second

// Repeats is a slog.Handler that bounds the log, whatever clients send and however often something fails.
//
// Records with the same message, route, status and error are of one kind: clients choose none of these. At most one
// record of a kind is written in each repeatPeriod, with the number of records that were left out before it.
//
// Handlers that WithAttrs and WithGroup return leave out nothing.
type Repeats struct {
	slog.Handler

	mu    sync.Mutex
	kinds map[string]kind
}

// kind is when the last record of a kind was written, and how many followed it.
type kind struct {
	last time.Time
	more int
}

// NewRepeats returns a Repeats that writes to next.
func NewRepeats(next slog.Handler) *Repeats {
	return &Repeats{Handler: next, kinds: map[string]kind{}}
}

func (h *Repeats) Handle(ctx context.Context, r slog.Record) error {
	name := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "route" || a.Key == "status" || a.Key == "error" {
			name += "\x00" + a.String()
		}
		return true
	})
	more, isRepeat := h.count(name, r.Time)
	if isRepeat {
		return nil
	}
	if more > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("more", more))
	}
	return h.Handler.Handle(ctx, r)
}

// count counts a record of a kind. It returns how many were left out before it, or that it is to be left out too.
func (h *Repeats) count(name string, at time.Time) (more int, isRepeat bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.kinds[name]
	if at.Sub(k.last) < repeatPeriod {
		k.more++
		h.kinds[name] = k
		return 0, true
	}
	h.kinds[name] = kind{last: at}
	return k.more, false
}
