package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/share"
	"plantstore/internal/token"
)

// blocking is a database whose writes do not return before release is closed.
type blocking struct{ entered, release chan struct{} }

func (s blocking) write() {
	s.entered <- struct{}{}
	<-s.release
}

func (s blocking) Create(context.Context, plant.Record) (plant.Outcome, error) {
	s.write()
	return plant.Created, nil
}

func (s blocking) Edit(context.Context, plant.Edit) (plant.Outcome, error) {
	s.write()
	return plant.Replaced, nil
}

// owners is connections of several owners.
type owners struct {
	oneOwner
	n atomic.Int32
}

func (o *owners) Tokens() int { return int(o.n.Load()) }

// isFree reports whether nobody holds anything of a pool, if its owners are contended: then two claims of one owner get
// half of it together.
func isFree(pool *share.Pool[token.Hash]) bool {
	a, b := pool.Claim(token.Hash{1}), pool.Claim(token.Hash{1})
	defer a.Release()
	defer b.Release()
	return a.RaiseTo(1) == nil && b.RaiseTo(pool.Capacity/2-1) == nil
}

// writers sends writes that the database does not finish.
type writers struct {
	t                    *testing.T
	api                  *API
	db                   blocking
	method, target, body string
	waiting              sync.WaitGroup
}

// enters reports whether a write of a token reaches the database.
func (w *writers) enters(token string) bool {
	refused := make(chan string, 1)
	w.waiting.Go(func() {
		response := send(w.api, w.method, w.target, strings.NewReader(w.body), "Authorization", token)
		if response.Code >= 300 {
			refused <- response.Body.String()
		}
	})
	select {
	case <-w.db.entered:
		return true
	case body := <-refused:
		if body != `{"error":50301,"message":"the token already has its share of the waiting writes; retry later"}` {
			w.t.Errorf("refused with %s", body)
		}
		return false
	}
}

// When the database hangs, one token can't fill a queue: other tokens can still write.
func TestQueuesAreShared(t *testing.T) {
	const capacity = 40
	for _, test := range []struct{ method, target, body string }{
		{"POST", "/plants", `{"id":1,"name":"x"}`},
		{"PUT", "/plants/1", `{"name":"x"}`},
		{"DELETE", "/plants/1", ``},
	} {
		t.Run(test.method, func(t *testing.T) {
			db := blocking{make(chan struct{}), make(chan struct{})}
			conns := new(owners)
			conns.n.Store(1)
			a, _ := newAPI(Config{}, Dependencies{
				Create: db.Create, Edit: db.Edit, Connections: conns, Queue: capacity,
			})
			w := &writers{t: t, api: a, db: db, method: test.method, target: test.target, body: test.body}
			for n := range capacity * 3 / 4 {
				if !w.enters("greedy") {
					t.Fatalf("write %d of the only token was refused", n)
				}
			}
			conns.n.Store(2)
			if w.enters("greedy") {
				t.Error("a token with three quarters of the queue got more while another is present")
			}
			for n := range capacity / 8 {
				if !w.enters("modest") {
					t.Errorf("write %d of another token was refused", n)
				}
			}
			if w.enters("modest") {
				t.Error("a token got more than is left for others")
			}
			if !w.enters("new") {
				t.Error("the first write of a token was refused")
			}
			close(db.release)
			w.waiting.Wait()
			if !isFree(&a.creates) || !isFree(&a.edits) {
				t.Error("writes are in flight after all responses")
			}
		})
	}
}

// large is a store in which every plant has a name of so many bytes.
type large struct {
	Reader
	bytes int
}

func (l large) Get(_ context.Context, _ string, id int64) (plant.New, error) {
	return plant.New{ID: id, Plant: plant.Plant{Name: strings.Repeat("x", l.bytes)}}, nil
}

func (l large) List(ctx context.Context, store string, _ *int64, _ int) ([]plant.New, error) {
	p, err := l.Get(ctx, store, 1)
	return []plant.New{p}, err
}

const (
	memoryInUse = "the memory for large bodies and pages is in use; retry later"
	memoryShare = "the token already has its share of the memory for large bodies and pages; retry later"
)

// A plant that is read counts as memory, twice its size, until the response is written.
func TestReadsReserveMemory(t *testing.T) {
	for _, test := range []struct {
		max   int64
		bytes int
		ok    bool
	}{
		{100 << 10, 50 << 10, true},
		{100 << 10, 50<<10 + 1, false},
		{1, small / 2, true}, // small responses are not counted
		{1, small/2 + 1, false},
		{0, 1 << 20, true}, // unlimited
	} {
		a, _ := newAPI(Config{}, Dependencies{MaxMemory: test.max, Reader: large{bytes: test.bytes}})
		for range 3 { // each returns what it reserved
			w := send(a, "GET", "/plants/1", nil)
			if !test.ok {
				wantError(t, w, 50301, memoryInUse)
			} else if w.Code != 200 || w.Body.Len() < test.bytes {
				t.Errorf("a plant of %d bytes with %d of memory: %d, %d bytes", test.bytes, test.max, w.Code, w.Body.Len())
			}
		}
	}
}

// A page reserves memory for its plants, and for the buffer that it is written to.
func TestPagesReserveMemory(t *testing.T) {
	for most, ok := range map[int64]bool{20 << 10: true, 9 << 10: false, 0: true} {
		a, _ := newAPI(Config{}, Dependencies{MaxMemory: most, Reader: large{bytes: 10 << 10}})
		if w := send(a, "GET", "/plants", nil); ok && w.Code != 200 {
			t.Errorf("a page of 10 KiB with %d bytes of memory: %d %s", most, w.Code, w.Body)
		} else if !ok {
			wantError(t, w, 50301, memoryInUse)
		}
	}
}

// Bodies reserve memory while they are read; 0 is unlimited.
func TestBodiesReserveMemory(t *testing.T) {
	body := fmt.Sprintf(`{"id":1,"name":%q}`, strings.Repeat("x", 60<<10))
	for most, ok := range map[int64]bool{256 << 10: true, 30 << 10: false, 0: true} {
		a, _ := newAPI(Config{}, Dependencies{MaxMemory: most, Create: ferns().Create})
		if w := send(a, "POST", "/plants", strings.NewReader(body)); ok && w.Code != 200 {
			t.Errorf("a body of 60 KiB with %d bytes of memory: %d %s", most, w.Code, w.Body)
		} else if !ok {
			wantError(t, w, 50301, memoryInUse)
		}
	}
}

// A token that leaves bodies unfinished can't take the memory that others need for bodies and pages.
func TestMemoryIsShared(t *testing.T) {
	const most, size = 1 << 20, 60 << 10
	a, _ := newAPI(Config{AccessLog: LogNone}, Dependencies{
		MaxMemory: most, Create: ferns().Create, Reader: large{bytes: size},
	})
	var unfinished []*io.PipeWriter
	var inFlight sync.WaitGroup
	// leave sends a body without its end, and returns the response if it is refused.
	leave := func(token string) (refused string) {
		body, client := io.Pipe()
		unfinished = append(unfinished, client)
		response := make(chan string, 1)
		inFlight.Go(func() {
			response <- send(a, "POST", "/plants", body, "Authorization", token).Body.String()
			body.Close() // ends the write below if the body is not read
		})
		if _, err := client.Write(bytes.Repeat([]byte(" "), size)); err != nil {
			return <-response
		}
		return ""
	}
	refused := ""
	for n := 0; refused == ""; n++ {
		if n > most/size {
			t.Fatalf("%d bodies of %d bytes were accepted with %d bytes of memory", n, size, most)
		}
		refused = leave("greedy")
	}
	if !strings.Contains(refused, memoryShare) {
		t.Errorf("the greedy token gets %s, want %s", refused, memoryShare)
	}
	small := strings.NewReader(`{"id":1,"name":"small"}`)
	if w := send(a, "POST", "/plants", small, "Authorization", "greedy"); w.Code != 200 {
		t.Errorf("a small body: %d %s", w.Code, w.Body)
	}
	for n := range 2 {
		if w := send(a, "GET", "/plants", nil, "Authorization", "modest"); w.Code != 200 {
			t.Errorf("a list of another token: %d %s", w.Code, w.Body)
		}
		if refused := leave("modest"); refused != "" {
			t.Errorf("body %d of another token: %s", n, refused)
		}
	}
	for _, client := range unfinished {
		client.Close()
	}
	inFlight.Wait()
	if !isFree(&a.memory) {
		t.Error("memory is reserved after all requests")
	}
}
