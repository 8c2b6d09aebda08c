package conform

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// receiver keeps the webhooks that it gets.
type receiver struct {
	url    string
	server *http.Server
	mu     sync.Mutex
	got    []response
}

// receive starts a receiver.
func receive(l net.Listener) *receiver {
	r := &receiver{url: "http://" + l.Addr().String() + "/plant/webhook"}
	r.server = &http.Server{Handler: r, ReadTimeout: maxRequest}
	go r.server.Serve(l)
	return r
}

func (r *receiver) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<20))
	if err == nil && request.Method == http.MethodPost {
		r.mu.Lock()
		r.got = append(r.got, response{header: request.Header, body: body})
		r.mu.Unlock()
	}
}

// wait returns the webhook with a body that passes a check. If there is none in time, it returns the last one with the
// body, and why it fails.
func (r *receiver) wait(ctx context.Context, body string, check func(response) error) (found response, err error) {
	want, _ := parse([]byte(body)) // a test checks every case
	err = errors.New("there was no such request")
	for end := time.Now().Add(maxWebhook); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		r.mu.Lock()
		got := r.got
		r.mu.Unlock()
		for _, w := range got {
			if value, _ := parse(w.body); contains(want, value) {
				if found, err = w, check(w); err == nil {
					return found, nil
				}
			}
		}
	}
	return found, err
}
