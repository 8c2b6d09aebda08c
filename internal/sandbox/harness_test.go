package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/token"
)

// disk is a database file whose disk has as much free space as a test wants.
type disk struct {
	*sqlite.Storage
	free int64
	list func() error // fails lists, if it is set
}

func (d *disk) List(ctx context.Context, store string, after *int64, limit int) ([]plant.Plant, error) {
	if d.list != nil {
		return nil, d.list()
	}
	return d.Storage.List(ctx, store, after, limit)
}

func (d *disk) Stats() storage.Stats { return storage.Stats{Engine: "sqlite", Free: d.free} }

// service is the API with sandboxes on a database file.
type service struct {
	*Sandboxes
	disk *disk
	api  http.Handler
	from string // address of the client
}

// anyConnections never evicts a connection.
type anyConnections struct{}

func (anyConnections) SetToken(context.Context, [32]byte) {}
func (anyConnections) Last(context.Context) bool          { return false }
func (anyConnections) Tokens() int                        { return 1 }
func (anyConnections) Park(context.Context) func() bool   { return func() bool { return true } }

// start opens a database file and serves it without Run, until the test ends.
func start(t *testing.T, cfg Config) *service {
	t.Helper()
	file, err := sqlite.Open(context.Background(), filepath.Join(t.TempDir(), "plants.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return serve(cfg, &disk{Storage: file, free: 2 * minFree})
}

// serve is another process on the same database.
func serve(cfg Config, d *disk) *service {
	s := &service{disk: d, Sandboxes: New(cfg, d), from: "192.0.2.1:4000"}
	edit := func(ctx context.Context, e plant.Edit) (plant.Outcome, error) {
		outcomes, err := d.EditBatch(ctx, []plant.Edit{e})
		return append(outcomes, 0)[0], err
	}
	s.api = httpapi.New(httpapi.Config{MaxBody: 64 << 10, AccessLog: httpapi.LogNone}, httpapi.Dependencies{
		Auth: token.NewAuthenticator(s, nil, nil), Create: s.Creates(s.createOne), Edit: s.Edits(edit),
		Reader: d, Connections: anyConnections{}, Log: slog.New(slog.DiscardHandler), Sandbox: s,
	})
	return s
}

func (s *service) createOne(ctx context.Context, r plant.Record) (plant.Outcome, error) {
	outcomes, err := s.disk.CreateBatch(ctx, []plant.Record{r})
	return append(outcomes, 0)[0], err
}

// send sends a request; headers are names and values. The status is 0 if the connection was closed.
func (s *service) send(method, path, body string, headers ...string) (w *httptest.ResponseRecorder) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if r.RemoteAddr = s.from; body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w = httptest.NewRecorder()
	defer func() {
		if recover() == http.ErrAbortHandler && !w.Flushed {
			w.Code = 0
		}
	}()
	s.api.ServeHTTP(w, r)
	return w
}

// store is a sandbox of a test.
type store struct {
	*service
	Store, Token string
	Expires      time.Time
	Plants       int64
}

// sandbox creates a sandbox.
func (s *service) sandbox(t *testing.T, options string) *store {
	t.Helper()
	b := &store{service: s}
	w := s.send("POST", "/sandboxes", options)
	if err := json.Unmarshal(w.Body.Bytes(), b); err != nil || w.Code != http.StatusCreated {
		t.Fatalf("POST /sandboxes %s: %d %s", options, w.Code, w.Body)
	}
	return b
}

func (b *store) do(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	return b.send(method, path, body, append(headers, "Authorization", "Bearer "+b.Token)...)
}

// want checks the status, or the error number, of a response, and returns its body.
func want(t *testing.T, what string, w *httptest.ResponseRecorder, code int) string {
	t.Helper()
	var e struct{ Error int }
	if json.Unmarshal(w.Body.Bytes(), &e); w.Code != code && e.Error != code {
		t.Errorf("%s: %d %.300s, want %d", what, w.Code, w.Body, code)
	}
	return w.Body.String()
}

// plants returns how many plants a store has.
func (b *store) plants(t *testing.T) int64 {
	t.Helper()
	n, err := b.disk.Count(t.Context(), b.Store)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func newPlant(id int, name string) string { return fmt.Sprintf(`{"id":%d,"name":%q}`, id, name) }
