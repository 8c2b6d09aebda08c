package httpapi

import (
	"bytes"
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"plantstore/internal/plant"
)

// silence is a service that tells no outcome.
type silence struct{}

func (silence) Create(context.Context, plant.Record) (plant.Outcome, error) { return 0, nil }

// large is a store in which every plant has a name of so many bytes.
type large struct {
	Reader
	bytes int
}

func (l large) Get(_ context.Context, _ string, id int64) (plant.New, error) {
	return plant.New{ID: id, Plant: plant.Plant{Name: strings.Repeat("x", l.bytes)}}, nil
}

// A plant that is read counts among what all requests together may hold in memory, until it is answered.
func TestReadsAreHeld(t *testing.T) {
	for bytes, want := range map[int]int{40 << 10: 200, 60 << 10: 503} {
		a, _ := newAPI(Config{}, Dependencies{MaxMemory: 100 << 10, Reader: large{bytes: bytes}})
		for range 3 {
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest("GET", "/plants/1", nil))
			if w.Code != want {
				t.Errorf("a plant of %d bytes: %d %.100s, want %d", bytes, w.Code, w.Body, want)
			}
		}
	}
}

func (l large) List(ctx context.Context, store string, _ *int64, _ int) ([]plant.New, error) {
	p, err := l.Get(ctx, store, 1)
	return []plant.New{p}, err
}

// A token that leaves bodies unfinished can't take the memory that others need for bodies and pages.
func TestMemoryIsShared(t *testing.T) {
	const most, size = 1 << 20, 60 << 10
	a, _ := newAPI(Config{AccessLog: LogNone}, Dependencies{
		MaxMemory: most, Auth: bearers{}, Creator: outcome{}, Reader: large{bytes: size},
	})
	ask := func(who, method string, body io.Reader) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/plants", body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", who)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		return w
	}
	var unfinished []*io.PipeWriter
	var under sync.WaitGroup
	leave := func(who string) (refused string) {
		body, client := io.Pipe()
		unfinished = append(unfinished, client)
		answered := make(chan string, 1)
		under.Go(func() {
			answered <- ask(who, "POST", body).Body.String()
			body.Close() // ends the write below, if it is not read
		})
		if _, err := client.Write(bytes.Repeat([]byte(" "), size)); err != nil {
			return <-answered
		}
		return ""
	}
	refused := ""
	for n := 0; refused == ""; n++ {
		if n > most/size {
			t.Fatalf("%d bodies of %d bytes were taken, and %d may be held", n, size, most)
		}
		refused = leave("greedy")
	}
	if want := `"message":"the token already has its share of the memory`; !strings.Contains(refused, want) {
		t.Errorf("the greedy token is told %s, want %s", refused, want)
	}
	if w := ask("greedy", "POST", strings.NewReader(`{"id":1,"name":"small"}`)); w.Code != 200 {
		t.Errorf("a small body: %d %s", w.Code, w.Body)
	}
	for n := range 2 {
		if w := ask("modest", "GET", nil); w.Code != 200 {
			t.Errorf("a list of another token: %d %s", w.Code, w.Body)
		}
		if refused := leave("modest"); refused != "" {
			t.Errorf("another token's body, after %d: %s", n, refused)
		}
	}
	for _, client := range unfinished {
		client.Close()
	}
	under.Wait()
	if used := a.memory.Used(); used != 0 {
		t.Errorf("%d bytes are reserved after all requests", used)
	}
}

// What nobody has confirmed is never answered 200.
func TestNoOutcome(t *testing.T) {
	a, _ := newAPI(Config{}, Dependencies{Creator: silence{}})
	w := send(a, "POST", "/plants", strings.NewReader(`{"id":1,"name":"x"}`))
	if w.Code != 503 || !strings.Contains(w.Body.String(), `"error":50302`) {
		t.Errorf("a create without an outcome: %d %s, want 50302", w.Code, w.Body)
	}
}
