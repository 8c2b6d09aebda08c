package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"unicode/utf8"

	"plantstore/internal/commit"
	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/token"
)

// FuzzEngines checks that both engines give the same responses, byte for byte, whatever is sent as a plant. What is
// rejected leaves nothing behind; what is accepted reads back as it was sent, can be repeated, replaced by itself and
// removed. Bytes that are not a plant become the name and the tag of one.
func FuzzEngines(f *testing.F) {
	all := openEngines(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		if !all.roundTrip(t, body) {
			text, err := json.Marshal(string(body))
			if err != nil {
				t.Fatal(err)
			}
			id := int64(binary.LittleEndian.Uint64(append(slices.Clone(body), make([]byte, 8)...)))
			all.roundTrip(t, fmt.Appendf(nil, `{"id":%d,"name":%s,"tag":%s}`, id, text, text))
		}
	})
}

// roundTrip creates, reads, replaces and removes a body in an empty store of each engine, and reports whether it was
// accepted.
func (all *engines) roundTrip(t *testing.T, body []byte) bool {
	t.Helper()
	all.stores++
	created := all.send(t, "POST", "/plants", body)
	if !utf8.ValidString(created.body) {
		t.Fatalf("POST %q: the response %q is not UTF-8", body, created.body)
	}
	if created.status != http.StatusOK {
		var failure struct{ Error int }
		err := json.Unmarshal([]byte(created.body), &failure)
		if err != nil || created.status != http.StatusBadRequest || failure.Error/100 != created.status {
			t.Fatalf("POST %q: %d %s is not an Error", body, created.status, created.body)
		}
		all.want(t, "GET", "/plants", nil, http.StatusOK, "[]")
		return false
	}
	var got struct{ Name, Tag *string }
	sent, err := plant.Decode(body)
	if err = errors.Join(err, json.Unmarshal([]byte(created.body), &got)); err != nil || got.Name == nil ||
		*got.Name != sent.Name || !reflect.DeepEqual(got.Tag, sent.Tag) {
		t.Fatalf("POST %q: 200 %s, %v", body, created.body, err)
	}
	path := fmt.Sprintf("/plants/%d", sent.ID)
	stored := fmt.Sprintf(`{"id":%d,%s`, sent.ID, created.body[1:])
	all.want(t, "GET", "/plants", nil, http.StatusOK, "["+stored+"]")
	all.want(t, "POST", "/plants", body, http.StatusOK, created.body)
	all.want(t, "PUT", path, body, http.StatusOK, stored)
	all.want(t, "GET", path, nil, http.StatusOK, stored)
	all.want(t, "DELETE", path, nil, http.StatusNoContent, "")
	all.want(t, "GET", "/plants", nil, http.StatusOK, "[]")
	return true
}

// engines are the API on a database of each engine.
type engines struct {
	apis   []http.Handler
	stores int // used so far: each body gets a new one
}

// Authenticate gives every request the current store.
func (all *engines) Authenticate(context.Context, []string, token.Source) (*token.Token, error) {
	return &token.Token{Store: fmt.Sprintf("process-%d-%d", os.Getpid(), all.stores), Scopes: token.AllScopes}, nil
}

// fuzzVariable has the address of the server of the first process: fuzzing starts more, which share it.
const fuzzVariable = "PLANTSTORE_TEST_FUZZ"

func openEngines(f *testing.F) *engines {
	f.Helper()
	address := os.Getenv(fuzzVariable)
	if address == "" { // durability does not matter here
		settings := map[string]string{"fsync": "off", "full_page_writes": "off"}
		address = pgtest.Start(f, settings).SocketURL("postgres")
		f.Setenv(fuzzVariable, address)
	}
	onFile, err := sqlite.Open(f.Context(), filepath.Join(inMemory(f), "plants.db"))
	if err != nil {
		f.Fatal(err)
	}
	onServer, err := postgres.Open(f.Context(), address, postgres.Options{UnsafeDurability: true})
	if err != nil {
		f.Fatal(err)
	}
	all := new(engines)
	all.add(f, onFile)
	all.add(f, onServer)
	return all
}

// inMemory returns a folder in memory, where fsync costs nothing, if the system has one.
func inMemory(f *testing.F) string {
	folder, err := os.MkdirTemp("/dev/shm", "plantstore-fuzz-")
	if err != nil {
		return f.TempDir()
	}
	f.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

func oneShard[T any](*T) (server, shard int) { return 0, 0 }

func (all *engines) add(f *testing.F, st storage.Storage) {
	creates := commit.New(st.CreateBatch, oneShard[plant.Record], commit.Options{})
	edits := commit.New(st.EditBatch, oneShard[plant.Edit], commit.Options{})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { creates.Run(ctx) })
	running.Go(func() { edits.Run(ctx) })
	f.Cleanup(func() {
		stop()
		running.Wait()
		if err := st.Close(); err != nil {
			f.Error(err)
		}
	})
	cfg := httpapi.Config{MaxBody: 64 << 10, AccessLog: httpapi.LogNone}
	all.apis = append(all.apis, httpapi.New(cfg, httpapi.Dependencies{
		Auth: all, Create: creates.Commit, Edit: edits.Commit, Reader: st,
		Connections: unlimited{}, Log: slog.New(slog.DiscardHandler),
	}))
}

// unlimited stands for connections without a limit.
type unlimited struct{}

func (unlimited) SetToken(context.Context, [32]byte) {}
func (unlimited) Last(context.Context) bool          { return false }
func (unlimited) Tokens() int                        { return 1 }
func (unlimited) Park(context.Context) func() bool   { return func() bool { return true } }

type result struct {
	status int
	body   string
	header http.Header // without the request id
}

// send sends a request to every engine and returns the response, which must be the same.
func (all *engines) send(t *testing.T, method, path string, body []byte) result {
	t.Helper()
	var first result
	for i, handler := range all.apis {
		r := httptest.NewRequest(method, path, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		w.Header().Del("X-Request-Id")
		a := result{w.Code, w.Body.String(), w.Header()}
		if i == 0 {
			first = a
		} else if a.status != first.status || a.body != first.body || fmt.Sprint(a.header) != fmt.Sprint(first.header) {
			t.Fatalf("%s %s %q: SQLite: %+v, PostgreSQL: %+v", method, path, body, first, a)
		}
	}
	return first
}

func (all *engines) want(t *testing.T, method, path string, body []byte, status int, text string) {
	t.Helper()
	if a := all.send(t, method, path, body); a.status != status || a.body != text {
		t.Fatalf("%s %s %q: got %d %q, want %d %q", method, path, body, a.status, a.body, status, text)
	}
}
