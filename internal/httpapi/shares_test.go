package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"plantstore/internal/plant"
	"plantstore/internal/share"
	"plantstore/internal/token"
)

// blocking is a database whose writes do not return before it is closed.
type blocking chan struct{}

func (db blocking) Create(context.Context, plant.Record) (plant.Outcome, error) {
	<-db
	return plant.Created, nil
}

func (db blocking) Edit(context.Context, plant.Edit) (plant.Outcome, error) {
	<-db
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
	return a.RaiseTo(1) && b.RaiseTo(pool.Capacity/2-1)
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
			synctest.Test(t, func(t *testing.T) {
				db := make(blocking)
				conns := new(owners)
				conns.n.Store(1)
				a, _ := newAPI(Config{}, Dependencies{Create: db.Create, Edit: db.Edit, Connections: conns, Queue: capacity})
				// write sends n writes of a token and returns how many are refused.
				write := func(token string, n int) (refused int32) {
					var count atomic.Int32
					for range n {
						go func() {
							w := send(a, test.method, test.target, strings.NewReader(test.body), "Authorization", token)
							if w.Code >= 300 {
								count.Add(1)
								wantError(t, w, 50301, "the token already has its share of the waiting writes; retry later")
							}
						}()
					}
					synctest.Wait()
					return count.Load()
				}
				if refused := write("greedy", capacity*3/4); refused != 0 {
					t.Errorf("%d writes of the only token were refused", refused)
				}
				conns.n.Store(2)
				if write("greedy", 1) != 1 {
					t.Error("a token with three quarters of the queue got more while another is present")
				}
				if refused := write("modest", capacity/8+1); refused != 1 {
					t.Errorf("%d writes of another token were refused, want the one beyond what is left for others", refused)
				}
				if write("new", 1) != 0 {
					t.Error("the first write of a token was refused")
				}
				close(db)
				synctest.Wait()
				if !isFree(&a.creates) || !isFree(&a.edits) {
					t.Error("writes are in flight after all responses")
				}
			})
		})
	}
}

// large is a storage in which every plant has a name of so many bytes.
type large struct {
	Reader
	bytes int
}

func (l large) Get(_ context.Context, _ string, id int64) (plant.Plant, error) {
	return plant.Plant{ID: id, Content: plant.Content{Name: strings.Repeat("x", l.bytes)}}, nil
}

func (l large) List(ctx context.Context, store string, _ *int64, _ int) ([]plant.Plant, error) {
	p, err := l.Get(ctx, store, 1)
	return []plant.Plant{p}, err
}

const memoryInUse = "the memory for large bodies, or the token's share of it, is in use; retry later"

// Bodies, plants and pages count as memory while they are read and written: a plant twice, and a page with the buffer
// that it is written to. 0 is unlimited.
func TestPagesReserveMemory(t *testing.T) {
	for _, test := range []struct {
		method, target string
		size           int // of the name
		max            int64
		ok             bool
	}{
		{"GET", "/plants/1", 50 << 10, 100 << 10, true},
		{"GET", "/plants/1", 50<<10 + 1, 100 << 10, false},
		{"GET", "/plants/1", 2 << 10, 1, true}, // small responses are not counted
		{"GET", "/plants/1", 2<<10 + 1, 1, false},
		{"GET", "/plants/1", 1 << 20, 0, true},
		{"GET", "/plants", 10 << 10, 20 << 10, true},
		{"GET", "/plants", 10 << 10, 9 << 10, false},
		{"GET", "/plants", 10 << 10, 0, true},
		{"POST", "/plants", 60 << 10, 256 << 10, true},
		{"POST", "/plants", 60 << 10, 30 << 10, false},
		{"POST", "/plants", 60 << 10, 0, true},
	} {
		a, _ := newAPI(Config{}, Dependencies{
			MaxMemory: test.max, Reader: large{bytes: test.size}, Create: ferns().Create,
		})
		for range 3 { // each returns what it reserved
			body := fmt.Sprintf(`{"id":1,"name":%q}`, strings.Repeat("x", test.size))
			w := send(a, test.method, test.target, strings.NewReader(body))
			if !test.ok {
				wantError(t, w, 50301, memoryInUse)
			} else if w.Code != 200 || w.Body.Len() < test.size {
				t.Errorf("%+v: %d, %d bytes", test, w.Code, w.Body.Len())
			}
		}
	}
}

// A token that leaves bodies unfinished can't take the memory that others need for bodies and pages.
func TestMemoryIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, size = 1 << 20, 60 << 10
		a, _ := newAPI(Config{AccessLog: LogNone}, Dependencies{
			MaxMemory: most, Create: ferns().Create, Reader: large{bytes: size},
		})
		end := make(chan struct{})
		// leave sends a body without its end, and returns the response if it is refused.
		leave := func(token string) *httptest.ResponseRecorder {
			var refused atomic.Pointer[httptest.ResponseRecorder]
			go func() {
				body := io.MultiReader(strings.NewReader(strings.Repeat(" ", size)), endless{end})
				refused.Store(send(a, "POST", "/plants", body, "Authorization", token))
			}()
			synctest.Wait()
			return refused.Load()
		}
		accepted := 0
		for ; accepted < most/size; accepted++ {
			if w := leave("greedy"); w != nil {
				wantError(t, w, 50301, memoryInUse)
				break
			}
		}
		if accepted == 0 || accepted == most/size {
			t.Errorf("%d bodies of %d bytes were accepted with %d bytes of memory", accepted, size, most)
		}
		small := strings.NewReader(`{"id":1,"name":"small"}`)
		if w := send(a, "POST", "/plants", small, "Authorization", "greedy"); w.Code != 200 {
			t.Errorf("a small body: %d %s", w.Code, w.Body)
		}
		for n := range 2 {
			if w := send(a, "GET", "/plants", nil, "Authorization", "modest"); w.Code != 200 {
				t.Errorf("a list of another token: %d %s", w.Code, w.Body)
			}
			if w := leave("modest"); w != nil {
				t.Errorf("body %d of another token: %d %s", n, w.Code, w.Body)
			}
		}
		close(end)
		synctest.Wait()
		if !isFree(&a.memory) {
			t.Error("memory is reserved after all requests")
		}
	})
}

// endless is a body that ends when its channel is closed.
type endless struct{ end chan struct{} }

func (e endless) Read([]byte) (int, error) {
	<-e.end
	return 0, io.EOF
}
