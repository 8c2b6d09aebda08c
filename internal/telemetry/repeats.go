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
// Records with the same message, route, status and error are of one kind: clients choose none of these. The first
// record of a kind is written unchanged. Further ones within repeatPeriod are counted. Then one record is written with
// the attributes that they have in common, and their number, unless the process has ended.
//
// Handlers that WithAttrs and WithGroup return do not group records.
type Repeats struct {
	slog.Handler

	mu    sync.Mutex
	kinds map[string]*repeat
}

// repeat counts the records of a kind for repeatPeriod after the first.
type repeat struct {
	record slog.Record // with the attributes that all records of the kind have in common
	more   int         // records after the first
}

// NewRepeats returns a Repeats that writes to next.
func NewRepeats(next slog.Handler) *Repeats {
	return &Repeats{Handler: next, kinds: map[string]*repeat{}}
}

// Handle implements slog.Handler.
func (h *Repeats) Handle(ctx context.Context, r slog.Record) error {
	kind, common := r.Message, slog.NewRecord(r.Time, r.Level, r.Message, 0)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "route" || a.Key == "status" || a.Key == "error" {
			kind += "\x00" + a.String()
			common.AddAttrs(a)
		}
		return true
	})
	h.mu.Lock()
	if seen := h.kinds[kind]; seen != nil {
		seen.more++
		h.mu.Unlock()
		return nil
	}
	h.kinds[kind] = &repeat{record: common}
	h.mu.Unlock()
	time.AfterFunc(repeatPeriod, func() { h.end(kind) })
	return h.Handler.Handle(ctx, r)
}

// end writes how many records of a kind followed the first.
func (h *Repeats) end(kind string) {
	h.mu.Lock()
	ended := h.kinds[kind]
	delete(h.kinds, kind)
	h.mu.Unlock()
	if r := ended.record; ended.more > 0 {
		r.Time = time.Now()
		r.AddAttrs(slog.Int("more", ended.more), slog.String("in", repeatPeriod.String()))
		h.Handler.Handle(context.Background(), r)
	}
}
