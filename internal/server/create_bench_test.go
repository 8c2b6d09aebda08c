package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/commit"
	"plantstore/internal/httpapi"
	"plantstore/internal/server"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/telemetry"
	"plantstore/internal/testkit"
	"plantstore/internal/testkit/issuer"
	"plantstore/internal/token"
	"plantstore/internal/token/oidc"
)

// BenchmarkCreate is a create from the handler to the disk and back, without net/http, so that all that it
// allocates is ours, with and without traces. CPU time varies less than time, which includes that of the
// disk.
func BenchmarkCreate(b *testing.B) {
	b.Run("traces=off", func(b *testing.B) { benchmarkCreate(b, nil, nil) })
	b.Run("traces=on", func(b *testing.B) {
		var received atomic.Int64
		collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			received.Add(n)
		}))
		defer collector.Close()
		b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
		tracer, err := telemetry.NewTracer(b.Context(), "", slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := tracer.Close(); err != nil || received.Load() == 0 {
				b.Errorf("the collector received %d bytes of spans: %v", received.Load(), err)
			}
		}()
		benchmarkCreate(b, tracer, nil)
	})
	b.Run("token=jwt", func(b *testing.B) { benchmarkCreate(b, nil, issuer.Start(b)) })
}

// benchmarkCreate creates plants with an opaque token or, if i is not nil, with one of an identity provider.
func benchmarkCreate(b *testing.B, tracer *telemetry.Tracer, i *issuer.Issuer) {
	metrics := telemetry.NewMetrics("", func(telemetry.Set) {})
	t, credential := token.New("bench", "main", token.AllScopes, time.Now(), time.Time{})
	st, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "plants.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	if err := st.AddToken(b.Context(), t); err != nil {
		b.Fatal(err)
	}
	committer := commit.New(st.CreateBatch, nil, commit.Options{
		Observe: server.ObserveCommits(metrics, "create"), ObserveWait: server.ObserveWaits(tracer),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		committer.Run(ctx)
		close(ended)
	}()
	defer func() { stop(); <-ended }()
	auth := token.NewAuthenticator(st, nil, time.Now)
	if i != nil {
		credential = i.Token(b, nil)
		auth.Accept(verifier(b, i, credential))
	}
	var api http.Handler = httpapi.New(httpapi.Config{MaxBody: 64 << 10}, httpapi.Dependencies{
		Auth: auth, Create: committer.Commit, Reader: st,
		Connections: unlimited{}, Queue: committer.Queue(), Log: slog.New(slog.DiscardHandler),
		Observe: server.ObserveRequests(metrics, tracer),
	})
	api = tracer.Handler(api)

	var ids atomic.Int64
	b.SetParallelism(32)
	before := cpuTime(b)
	b.Cleanup(func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") })
	b.ResetTimer()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		w := &response{header: http.Header{}}
		body := new(bytes.Reader)
		r, err := http.NewRequest("POST", "http://plants.example/plants", nil)
		if err != nil {
			b.Error(err)
			return
		}
		r.Header = http.Header{"Authorization": {"Bearer " + credential}, "Content-Type": {"application/json"}}
		r.Body = io.NopCloser(body)
		var text []byte
		for pb.Next() {
			text = fmt.Appendf(text[:0], `{"id":%d,"name":"Monstera deliciosa","tag":"climber"}`, ids.Add(1))
			body.Reset(text)
			r.ContentLength = int64(len(text))
			clear(w.header)
			api.ServeHTTP(w, r)
			if w.status != http.StatusOK {
				b.Errorf("status %d", w.status)
				return
			}
		}
	})
}

// cpuTime is what this process has used so far, in ns.
func cpuTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// response keeps the status and drops the rest.
type response struct {
	header http.Header
	status int
}

func (r *response) Header() http.Header         { return r.header }
func (r *response) WriteHeader(status int)      { r.status = status }
func (r *response) Write(b []byte) (int, error) { return len(b), nil }

// unlimited stands for connections without a limit.
type unlimited struct{}

func (unlimited) SetToken(context.Context, [32]byte) {}
func (unlimited) Last(context.Context) bool          { return false }
func (unlimited) Tokens() int                        { return 1 }

// verifier returns one that has the key of a JWT.
func verifier(b *testing.B, i *issuer.Issuer, jwt string) *oidc.Verifier {
	v, err := oidc.New(oidc.Config{
		Issuer: i.URL, Audience: issuer.Audience, ScopeClaim: "scope", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	go v.Run(b.Context())
	testkit.WaitFor(b, "the keys", func() bool { _, err := v.Verify(jwt); return err == nil })
	return v
}
