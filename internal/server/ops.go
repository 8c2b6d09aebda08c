package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/pprof"
	profiles "runtime/pprof"
	"time"

	"plantstore/internal/commit"
	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/telemetry"
)

// observeCheckpoints logs checkpoints that fail, and counts all of them.
func (s *service) observeCheckpoints() {
	observe := func(took time.Duration, err error) {
		if err != nil {
			s.cfg.Log.Error("a checkpoint failed", "reason", err.Error())
		}
		s.metrics.Checkpoint(resultLabel(err), took)
	}
	type checkpointer interface {
		ObserveCheckpoints(observe func(took time.Duration, err error))
	}
	if st, ok := s.storage.(checkpointer); ok {
		st.ObserveCheckpoints(observe)
	}
}

// observeWaits returns nil without a tracer: then the times of a write are not taken.
func observeWaits(t *telemetry.Tracer) func(context.Context, commit.WriteTiming) {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, w commit.WriteTiming) {
		t.Write(ctx, w.Joined, w.Started, w.Ended, w.Plants, w.Err)
	}
}

func observeCommits(m *telemetry.Metrics, operation string) func(commit.BatchResult) {
	return func(c commit.BatchResult) {
		m.Commit(operation, c.Plants, resultLabel(c.Err), c.Took)
		var counts [plant.Changed + 1]int
		for _, o := range c.Outcomes {
			counts[min(o, plant.Changed)]++
		}
		for o, n := range counts {
			if n > 0 {
				m.Outcomes(operation, n, plant.Outcome(o).String())
			}
		}
	}
}

func resultLabel(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, storage.ErrUnknown):
		return "unknown"
	}
	return "failed"
}

// sample sets the metrics that are read for each scrape. It waits for the database no longer than /readyz does.
func (s *service) sample(set telemetry.Set) {
	set(telemetry.Ready, boolGauge(s.health.Ready() == nil))
	for operation, queue := range map[string]interface{ Waiting() int }{"create": s.creates, "edit": s.edits} {
		set(telemetry.QueuePlants, float64(queue.Waiting()), operation)
		set(telemetry.QueueLimit, float64(s.creates.Queue()), operation)
	}
	conns := s.conns.Stats()
	setByLabel(set, telemetry.Connections, conns.Open)
	set(telemetry.MaxConnections, float64(s.cfg.MaxConns))
	setByLabel(set, telemetry.Evicted, conns.Evicted)
	setByLabel(set, telemetry.Refused, conns.Refused)
	set(telemetry.AcceptErrors, float64(conns.AcceptErrors))
	database := s.storage.Stats()
	if database.Bytes > 0 {
		set(telemetry.DatabaseBytes, float64(database.Bytes))
	}
	if database.WALBytes >= 0 {
		set(telemetry.WALBytes, float64(database.WALBytes))
	}
	if database.Free >= 0 {
		set(telemetry.DiskFreeBytes, float64(database.Free))
	}
	if database.Backup > 0 {
		set(telemetry.LastBackup, float64(database.Backup))
	}
	set(telemetry.WritesStopped, boolGauge(database.Stopped))
	set(telemetry.DatabaseConnections, float64(database.UsedConns), database.Engine, "used")
	set(telemetry.DatabaseConnections, float64(database.IdleConns), database.Engine, "idle")
	set(telemetry.MaxDatabaseConnections, float64(database.MaxConns), database.Engine)
	setByLabel(set, telemetry.Nodes, database.Nodes)
	if s.hooks != nil {
		set(telemetry.OldestDelivery, s.hooks.Oldest().Seconds())
	}
	if s.cfg.TLS != nil {
		if expiry := s.cfg.CertificateExpiry(); !expiry.IsZero() {
			set(telemetry.CertificateExpiry, float64(expiry.Unix()))
		}
	}
}

func setByLabel(set telemetry.Set, metric telemetry.Sampled, counts map[string]int64) {
	for label, n := range counts {
		set(metric, float64(n), label)
	}
}

func boolGauge(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// opsPaths returns the handlers of the ops port by their paths. /debug/pprof/cmdline is not served, because the command
// line can have the password of a database.
func (s *service) opsPaths() map[string]http.Handler {
	paths := map[string]http.Handler{
		"/livez":        http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") }),
		"/readyz":       s.health,
		"/metrics":      s.metrics.Handler(log.New(logFunc(s.log.Warn), "", 0)),
		"/debug/pprof/": http.HandlerFunc(pprof.Index), "/debug/pprof/symbol": http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile), "/debug/pprof/trace": http.HandlerFunc(pprof.Trace),
	}
	for _, p := range profiles.Profiles() {
		paths["/debug/pprof/"+p.Name()] = pprof.Handler(p.Name())
	}
	return paths
}

// servePaths passes GET and HEAD requests for the paths on to their handlers. Others get an Error, where http.ServeMux
// would send a redirect, text, or no body.
func servePaths(paths map[string]http.Handler, log logFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, status := w.Header(), http.StatusNotFound
		if handler := paths[r.URL.Path]; handler != nil {
			if r.Method == http.MethodGet || r.Method == http.MethodHead {
				handler.ServeHTTP(w, r)
				return
			}
			h.Set("Allow", "GET, HEAD")
			status = http.StatusMethodNotAllowed
		}
		f, body, _ := httpapi.LibraryFailure(status)
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Request-Id", logFailure(f, r.RemoteAddr, log))
		w.WriteHeader(f.Status())
		w.Write(body)
	})
}
