package httpapi

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/internal/plant"
)

// stuck is a database whose writes do not return before release is closed.
type stuck struct{ entered, release chan struct{} }

func (s stuck) Create(context.Context, plant.Record) (plant.Outcome, error) {
	s.entered <- struct{}{}
	<-s.release
	return plant.Created, nil
}

func (s stuck) Replace(context.Context, string, int64, plant.Plant, *plant.Plant) error {
	_, err := s.Create(nil, plant.Record{})
	return err
}

func (s stuck) Remove(context.Context, string, int64, *plant.Plant) error {
	return s.Replace(nil, "", 0, plant.Plant{}, nil)
}

// owners is connections of several owners.
type owners struct {
	oneOwner
	n atomic.Int32
}

func (o *owners) Owners() int { return int(o.n.Load()) }

// When the database hangs, one token can't fill a queue: other tokens can still write.
func TestQueuesAreShared(t *testing.T) {
	for _, test := range []struct {
		method, target, body string
		capacity             int
	}{
		{"POST", "/plants", `{"id":1,"name":"x"}`, 40},
		{"PUT", "/plants/1", `{"name":"x"}`, maxEdits},
		{"DELETE", "/plants/1", ``, maxEdits},
	} {
		t.Run(test.method, func(t *testing.T) {
			db := stuck{make(chan struct{}), make(chan struct{})}
			conns := new(owners)
			conns.n.Store(1)
			a, _ := newAPI(Config{}, Dependencies{
				Auth: bearers{}, Creator: db, Editor: db, Connections: conns, CreateQueue: test.capacity,
			})
			var waiting sync.WaitGroup
			// enters reports whether a write of a token reaches the database.
			enters := func(token string) bool {
				refused := make(chan string, 1)
				waiting.Go(func() {
					w := send(a, test.method, test.target, strings.NewReader(test.body), "Authorization", token)
					if w.Code >= 300 {
						refused <- w.Body.String()
					}
				})
				select {
				case <-db.entered:
					return true
				case body := <-refused:
					if !strings.HasPrefix(body, `{"error":50301,"message":"the token already has its share of the waiting writes`) {
						t.Errorf("refused with %s", body)
					}
					return false
				}
			}
			for n := range test.capacity * 3 / 4 {
				if !enters("greedy") {
					t.Fatalf("write %d of the only token was refused", n)
				}
			}
			conns.n.Store(2)
			if enters("greedy") {
				t.Error("a token that has three quarters of the queue got more of it while another is present")
			}
			for n := range test.capacity / 8 {
				if !enters("modest") {
					t.Errorf("write %d of another token was refused", n)
				}
			}
			if enters("modest") {
				t.Error("a token got more than is left for others")
			}
			if !enters("new") {
				t.Error("the first write of a token was refused")
			}
			close(db.release)
			waiting.Wait()
			if n := a.creates.Used() + a.edits.Used(); n != 0 {
				t.Errorf("%d writes are in flight after all responses", n)
			}
		})
	}
}
