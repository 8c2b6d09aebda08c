package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/token"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// database is a storage that a test can take away from one process.
type database struct {
	storage.Storage
	lost    atomic.Bool
	changes atomic.Int64 // calls of ChangeDeliveries
}

var errLost = errors.New("the database is lost")

func (d *database) err() error {
	if d.lost.Load() {
		return errLost
	}
	return nil
}

func (d *database) Lease(ctx context.Context, owner string, t time.Duration) (bool, error) {
	if err := d.err(); err != nil {
		return false, err
	}
	return d.Storage.Lease(ctx, owner, t)
}

func (d *database) Webhooks(ctx context.Context, store string) ([]storage.Webhook, error) {
	if err := d.err(); err != nil {
		return nil, err
	}
	return d.Storage.Webhooks(ctx, store)
}

func (d *database) ChangeDeliveries(ctx context.Context, changes []storage.DeliveryChange) error {
	if err := d.err(); err != nil {
		return err
	}
	d.changes.Add(1)
	return d.Storage.ChangeDeliveries(ctx, changes)
}

// open opens a database file. Tests with synctest call it outside the bubble.
func open(t *testing.T) *sqlite.Storage {
	t.Helper()
	file, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "plants.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return file
}

// inBubble runs a test on a database file with a clock of its own.
func inBubble(t *testing.T, test func(t *testing.T, file *sqlite.Storage)) {
	file := open(t)
	synctest.Test(t, func(t *testing.T) { test(t, file) })
}

// request is a delivery as a receiver has seen it.
type request struct {
	*http.Request
	at   time.Time
	id   string
	body string
	n    int // requests with this id, with this one
}

// receiver is the network: it responds to all requests.
type receiver struct {
	respond func(request) (*http.Response, error)

	mu       sync.Mutex
	got      []request
	inFlight map[string]int // by id and host
	of       map[string]int // in flight, by host; "" for all
	most     map[string]int // most of them
	twice    bool           // a delivery was in flight twice
}

// status is a response without a body.
func status(code int, headers ...string) (*http.Response, error) {
	w := httptest.NewRecorder()
	for i := 0; i < len(headers); i += 2 {
		w.Header().Set(headers[i], headers[i+1])
	}
	w.WriteHeader(code)
	return w.Result(), nil
}

func always(code int) func(request) (*http.Response, error) {
	return func(request) (*http.Response, error) { return status(code) }
}

// after a time, or not at all if the request ends first.
func late(r request, d time.Duration) (*http.Response, error) {
	select {
	case <-time.After(d):
		return status(200)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func (c *receiver) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	q := request{Request: r, at: time.Now(), id: r.Header.Get("webhook-id"), body: string(body), n: 1}
	c.mu.Lock()
	if c.inFlight == nil {
		c.inFlight, c.of, c.most = map[string]int{}, map[string]int{}, map[string]int{}
	}
	for _, before := range c.got {
		if before.id == q.id {
			q.n++
		}
	}
	c.got = append(c.got, q)
	c.count(q, 1)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.count(q, -1)
	}()
	return c.respond(q)
}

func (c *receiver) count(q request, by int) {
	c.inFlight[q.id+q.URL.Host] += by
	c.twice = c.twice || c.inFlight[q.id+q.URL.Host] > 1
	for _, key := range []string{"", q.URL.Host} {
		c.of[key] += by
		c.most[key] = max(c.most[key], c.of[key])
	}
}

// requests returns what the receiver of a host, or any, has got.
func (c *receiver) requests(host string) []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.got), func(q request) bool { return host != "" && q.URL.Host != host })
}

// service is a process on a database, with the API of its webhooks. The test calls run and stop.
type service struct {
	*Webhooks
	t       *testing.T
	db      *database
	api     http.Handler
	log     *bytes.Buffer // complete after stop
	results map[string]int
	stop    func()
	closing chan struct{}
}

// owners authenticates a request for the store that its credential names.
type owners struct{}

func (owners) Authenticate(_ context.Context, headers []string, _ token.Source) (*token.Token, error) {
	store := strings.TrimPrefix(headers[0], "Bearer ")
	return &token.Token{Hash: token.HashOf(store), Store: store, Scopes: token.AllScopes}, nil
}

type anyConnections struct{}

func (anyConnections) SetToken(context.Context, [32]byte) {}
func (anyConnections) Last(context.Context) bool          { return false }
func (anyConnections) Tokens() int                        { return 1 }
func (anyConnections) Park(context.Context) func() bool   { return func() bool { return true } }

// start is a process that sends its requests to a receiver, or to the network if it is nil.
func start(t *testing.T, st storage.Storage, cfg Config, network *receiver) *service {
	t.Helper()
	s := &service{
		t: t, db: &database{Storage: st}, log: new(bytes.Buffer), results: map[string]int{}, stop: func() {},
		closing: make(chan struct{}),
	}
	if network != nil {
		cfg.Proxy = new(url.URL) // a bubble can't look names up
	}
	var mu sync.Mutex
	s.Webhooks = New(cfg, s.db, "test", slog.New(slog.NewTextHandler(s.log, nil)), func(result string) {
		mu.Lock()
		defer mu.Unlock()
		s.results[result]++
	})
	if network != nil {
		s.client.Transport = network
	}
	s.api = httpapi.New(httpapi.Config{MaxBody: 64 << 10, AccessLog: httpapi.LogNone}, httpapi.Dependencies{
		Auth: owners{}, Connections: anyConnections{}, Log: slog.New(slog.DiscardHandler), Webhooks: s.Webhooks,
		Stopping: s.closing,
	})
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// run starts to deliver.
func (s *service) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	s.stop = func() {
		cancel()
		<-ended
	}
}

// send sends a request to the API for the store "main", or for another one that a path starts with.
func (s *service) send(method, path, body string) *httptest.ResponseRecorder {
	store := "main"
	if i := strings.Index(path, "/"); i > 0 {
		store, path = path[:i], path[i:]
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if r.Header.Set("Authorization", "Bearer "+store); body != "" {
		r.Header.Set("Content-Type", "application/json")
	} else {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	return w
}

// want checks the status, or the number of the error, of a response, and decodes its body.
func want[T any](s *service, code int, method, path, body string) (decoded T) {
	s.t.Helper()
	w := s.send(method, path, body)
	var e struct{ Error int }
	if json.Unmarshal(w.Body.Bytes(), &e); w.Code != code && e.Error != code {
		s.t.Errorf("%s %s %.200s: %d %.300s, want %d", method, path, body, w.Code, w.Body, code)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &decoded); err != nil && w.Body.Len() > 0 && code < 300 {
		s.t.Errorf("%s %s: %s: %v", method, path, w.Body, err)
	}
	return decoded
}

type none = struct{}

// add adds a push endpoint to the store "main", and returns the path of its operations.
func (s *service) add(url string) (path string, e shown) {
	s.t.Helper()
	e = want[shown](s, 201, "POST", "/webhooks", fmt.Sprintf(`{"url":%q}`, url))
	return "/webhooks/" + e.ID, e
}

// addPull adds a pull endpoint.
func (s *service) addPull(members string) (path string, e shown) {
	s.t.Helper()
	e = want[shown](s, 201, "POST", "/webhooks", `{"kind":"pull"`+members+`}`)
	return "/webhooks/" + e.ID, e
}

// create creates plants through the service, in transactions of their own.
func (s *service) create(store string, ids ...int64) {
	s.t.Helper()
	create := s.Creates(func(ctx context.Context, r plant.Record) (plant.Outcome, error) {
		outcomes, err := s.db.CreateBatch(ctx, []plant.Record{r})
		return append(outcomes, 0)[0], err
	})
	for _, id := range ids {
		r := plant.Record{Store: store, Plant: plant.Plant{ID: id, Content: plant.Content{Name: "Fern"}}}
		if outcome, err := create(context.Background(), r); outcome != plant.Created || err != nil {
			s.t.Fatalf("create plant %d: %v, %v", id, outcome, err)
		}
	}
}

// series returns the numbers from 1 to n.
func series(n int64) (all []int64) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

// deliveries lists the newest deliveries of an endpoint.
func (s *service) list(path, query string) []shownDelivery {
	s.t.Helper()
	return want[[]shownDelivery](s, 200, "GET", path+"/deliveries?"+query, "")
}

// setAll gives all deliveries of an endpoint that have a status another one.
func (s *service) setAll(path string, from, to storage.Status) {
	s.t.Helper()
	found, err := s.db.Deliveries(context.Background(), storage.DeliveryFilter{
		Webhook: strings.TrimPrefix(path, "/webhooks/"), Status: from, Before: afterAllEvents, Limit: 1 << 30,
	})
	var changes []storage.DeliveryChange
	for _, d := range found {
		d.Status, d.Due = to, time.Now().Add(keepFailed)
		changes = append(changes, storage.DeliveryChange{Delivery: d, From: from})
	}
	if err = errors.Join(err, s.db.ChangeDeliveries(context.Background(), changes)); err != nil || len(found) == 0 {
		s.t.Fatalf("%d %s deliveries of %s: %v", len(found), from, path, err)
	}
}

// restartAt stops a process, and starts it again at a time: nothing happens between them.
func (s *service) restartAt(at time.Time) {
	s.stop()
	time.Sleep(time.Until(at))
	s.run()
}
