package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// receiver is a receiver of webhooks. It keeps what it has received when it is killed. It shares no code with the
// service.
type receiver struct {
	t       *testing.T
	address string
	server  *http.Server

	mu       sync.Mutex
	secret   []byte
	hold     time.Duration // before each response
	status   int           // of each response
	received map[int64]receipt
	inFlight map[string]bool // by webhook-id
	hanging  int             // of these
	dropped  int             // received without a response
}

// receipt is what was received for a plant.
type receipt struct {
	ids   []string // each webhook-id, once
	body  string
	times int
}

// newReceiver starts a receiver.
func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{
		t: t, address: testkit.FreeAddress(t), status: 200, received: map[int64]receipt{}, inFlight: map[string]bool{},
	}
	r.start()
	t.Cleanup(r.kill)
	return r
}

func (r *receiver) start() {
	r.t.Helper()
	var l net.Listener
	testkit.WaitFor(r.t, "the address of the receiver", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", r.address)
		return err == nil
	})
	r.server = &http.Server{Handler: r}
	go r.server.Serve(l)
}

// kill closes the port and all connections. Requests in flight do not count as received.
func (r *receiver) kill() { r.server.Close() }

func (r *receiver) setSecret(t testing.TB, text string) {
	t.Helper()
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	if err != nil || len(secret) != 32 || !strings.HasPrefix(text, "whsec_") {
		t.Errorf("the secret is %q", text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secret = secret
}

// respond makes the receiver wait before each response, and return a status.
func (r *receiver) respond(hold time.Duration, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold, r.status = hold, status
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the service was killed
	}
	id := q.Header.Get("Webhook-Id")
	hold, status := r.begin(id, q, body)
	select {
	case <-time.After(hold):
	case <-q.Context().Done(): // the client does not wait for the response
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inFlight, id)
	if hold == hanging {
		r.hanging--
	}
	if q.Context().Err() != nil {
		return
	}
	if status != 200 && status != noResponse {
		w.WriteHeader(status)
		return
	}
	var p struct{ ID int64 }
	if err := json.Unmarshal(body, &p); err != nil {
		r.t.Errorf("the body %q: %v", body, err)
	}
	before := r.received[p.ID]
	if before.body != "" && before.body != string(body) {
		r.t.Errorf("plant %d arrived as %s and as %s", p.ID, before.body, body)
	}
	if before.body = string(body); !slices.Contains(before.ids, id) {
		before.ids = append(before.ids, id)
	}
	before.times++
	r.received[p.ID] = before
	if status == noResponse {
		r.dropped++
		panic(http.ErrAbortHandler)
	}
}

// noResponse is the status of a receiver that closes the connection once it has received a delivery.
const noResponse = 0

// begin checks a request. It returns how to respond.
func (r *receiver) begin(id string, q *http.Request, body []byte) (hold time.Duration, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.check(id, q, body); err != nil {
		r.t.Errorf("%s %s %q: %v", q.Method, q.URL, q.Header, err)
	}
	if r.inFlight[id] {
		r.t.Errorf("%s is in flight twice", id)
	}
	r.inFlight[id] = true
	if r.hold == hanging {
		r.hanging++
	}
	return r.hold, r.status
}

// check returns an error unless a request is as Standard Webhooks 1.0.0 says.
func (r *receiver) check(id string, q *http.Request, body []byte) error {
	if q.Method != "POST" || q.ContentLength != int64(len(body)) || q.Header.Get("Content-Type") != "application/json" ||
		q.Header.Get("Webhook-Topic") != "plant.created" || !strings.HasPrefix(id, "msg_") {
		return fmt.Errorf("the method or a header is wrong")
	}
	at, err := strconv.ParseInt(q.Header.Get("Webhook-Timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return fmt.Errorf("the time is wrong: %w", err)
	}
	mac := hmac.New(sha256.New, r.secret)
	fmt.Fprintf(mac, "%s.%d.%s", id, at, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if r.secret != nil && q.Header.Get("Webhook-Signature") != want {
		return fmt.Errorf("the signature should be %q", want)
	}
	return nil
}

// plants returns what has been received.
func (r *receiver) plants() map[int64]receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[int64]receipt{}
	for id, p := range r.received {
		all[id] = p
	}
	return all
}

// waitFor waits until a condition holds, which is called with the lock.
func (r *receiver) waitFor(what string, holds func() bool) {
	r.t.Helper()
	testkit.WaitFor(r.t, what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return holds()
	})
}

// wait waits until so many more plants have been received.
func (r *receiver) wait(more int) {
	r.t.Helper()
	before := len(r.plants())
	r.waitFor(fmt.Sprintf("%d more deliveries", more), func() bool { return len(r.received) >= before+more })
}

// hanging is the time of responses that clients do not wait for.
const hanging = time.Hour

// waitInFlight waits until a request hangs.
func (r *receiver) waitInFlight() {
	r.t.Helper()
	r.waitFor("a request at the receiver", func() bool { return r.hanging > 0 })
}
