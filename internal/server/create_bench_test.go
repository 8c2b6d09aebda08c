package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/internal/commit"
	"plantstore/internal/httpapi"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/token"
)

// BenchmarkCreate is a create from the handler to the disk and back, without net/http, so that all that it
// allocates is ours.
func BenchmarkCreate(b *testing.B) {
	st, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "plants.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	t, credential := token.New("bench", "main", token.AllScopes, time.Now(), time.Time{})
	if err := st.AddToken(b.Context(), t); err != nil {
		b.Fatal(err)
	}
	committer := commit.New(st, commit.Options{})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		committer.Run(ctx)
		close(ended)
	}()
	defer func() { stop(); <-ended }()
	api := httpapi.New(httpapi.Config{MaxBody: 64 << 10}, httpapi.Dependencies{
		Auth: token.NewAuthenticator(st, nil, time.Now), Creator: committer, Reader: st, Editor: st,
		Connections: unlimited{}, CreateQueue: committer.Queue(), Log: slog.New(slog.DiscardHandler),
	})

	var ids atomic.Int64
	b.SetParallelism(32)
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

func (unlimited) Identify(context.Context, [32]byte) bool { return false }
func (unlimited) Owners() int                             { return 1 }
func (unlimited) Draining() bool                          { return false }
func (unlimited) CancelOnDisconnect(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
