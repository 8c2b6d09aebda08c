package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/token"
)

// database is a storage whose lease a test can fail for one process.
type database struct {
	storage.Storage
	lost atomic.Bool
}

func (d *database) Lease(ctx context.Context, owner string, t time.Duration) (bool, error) {
	if d.lost.Load() {
		return false, errors.New("the database is lost")
	}
	return d.Storage.Lease(ctx, owner, t)
}

// open opens a database file, outside the bubble of a test.
func open(t *testing.T) *sqlite.Storage {
	file, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "plants.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// inBubble runs a test with a clock of its own, and a process that delivers to receivers in memory.
func inBubble(t *testing.T, respond func(request) (*http.Response, error), test func(t *testing.T, s *service)) {
	file := open(t)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, file, Config{}, &receivers{respond: respond})
		s.run()
		defer func() { s.stop() }()
		test(t, s)
	})
}

// request is a delivery as a receiver has seen it.
type request struct {
	*http.Request
	at       time.Time
	id, body string
}

// receivers are a network in memory.
type receivers struct {
	respond func(request) (*http.Response, error)

	mu             sync.Mutex
	got            []request
	inFlight, most map[string]int // by host; "" for all
	ids            map[string]int // in flight, by host and id
	twice          bool           // a delivery was in flight twice
}

// status returns a response without a body. The headers alternate between names and values.
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

// takes responds after a time, unless the request ends first.
func takes(d time.Duration) func(request) (*http.Response, error) {
	return func(r request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return status(200)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

func (c *receivers) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil { // nil after a redirect
		body, _ = io.ReadAll(r.Body)
	}
	q := request{Request: r, at: time.Now(), id: r.Header.Get("webhook-id"), body: string(body)}
	c.mu.Lock()
	if c.ids == nil {
		c.ids, c.inFlight, c.most = map[string]int{}, map[string]int{}, map[string]int{}
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

func (c *receivers) count(q request, by int) {
	c.ids[q.URL.Host+q.id] += by
	c.twice = c.twice || c.ids[q.URL.Host+q.id] > 1
	for _, key := range []string{"", q.URL.Host} {
		c.inFlight[key] += by
		c.most[key] = max(c.most[key], c.inFlight[key])
	}
}

// requests returns those for a host, or for all hosts.
func (c *receivers) requests(host string) []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.got), func(q request) bool { return host != "" && q.URL.Host != host })
}

// service is a process on a database, with the API of its webhooks.
type service struct {
	*Webhooks
	*receivers
	t        *testing.T
	db       *database
	api      http.Handler
	mu       sync.Mutex
	results  map[string]int
	stop     func()
	stopping chan struct{}
}

// owners authenticates a request for the store that its credential names.
type owners struct{}

func (owners) Authenticate(_ context.Context, headers []string, _ token.Source) (*token.Token, error) {
	return &token.Token{Hash: token.HashOf(headers[0]), Store: headers[0], Scopes: token.AllScopes}, nil
}

type anyConnections struct{}

func (anyConnections) SetToken(context.Context, [32]byte) {}
func (anyConnections) Last(context.Context) bool          { return false }
func (anyConnections) Tokens() int                        { return 1 }
func (anyConnections) Park(context.Context) func() bool   { return func() bool { return true } }

// start returns a process that sends its requests to receivers in memory, or over the network if they are nil.
func start(t *testing.T, st storage.Storage, cfg Config, c *receivers) *service {
	t.Helper()
	s := &service{
		receivers: c, t: t, db: &database{Storage: st}, results: map[string]int{}, stopping: make(chan struct{}),
	}
	if c != nil {
		cfg.Proxy = new(url.URL) // names can't be resolved in a bubble
	}
	log := slog.New(slog.DiscardHandler)
	s.Webhooks = New(cfg, s.db, "test", log, func(result string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.results[result]++
	})
	if c != nil {
		s.client.Transport = c
	}
	s.api = httpapi.New(httpapi.Config{MaxBody: 64 << 10, AccessLog: httpapi.LogNone}, httpapi.Dependencies{
		Auth: owners{}, Connections: anyConnections{}, Log: log, Webhooks: s.Webhooks, Stopping: s.stopping,
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

// tried returns how many tries had a result.
func (s *service) tried(result string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.results[result]
}

// restartAt stops the process, and starts it again at a time.
func (s *service) restartAt(at time.Time) {
	s.stop()
	time.Sleep(time.Until(at))
	s.run()
}

// send sends a request to the API for the store "main", or for another one that the path starts with.
func (s *service) send(method, path, body string) *httptest.ResponseRecorder {
	store, rest, _ := strings.Cut(path, "/")
	r := httptest.NewRequest(method, "/"+rest, strings.NewReader(body))
	r.Header.Set("Authorization", cmp.Or(store, "main"))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	return w
}

type none = struct{}

// want checks the status, or the number of the error, of a response, and decodes its body.
func want[T any](s *service, code int, method, path, body string) (decoded T) {
	s.t.Helper()
	w := s.send(method, path, body)
	var e struct{ Error int }
	if json.Unmarshal(w.Body.Bytes(), &e); w.Code != code && e.Error != code {
		s.t.Errorf("%s %s %.200s: %d %.300s, want %d", method, path, body, w.Code, w.Body, code)
	}
	json.Unmarshal(w.Body.Bytes(), &decoded)
	return decoded
}

// add adds an endpoint to a store, and returns the path of its operations.
func (s *service) add(store, members string) (path string, e shown) {
	s.t.Helper()
	e = want[shown](s, 201, "POST", store+"/webhooks", "{"+members+"}")
	return store + "/webhooks/" + e.ID, e
}

// create creates plants through the service, each in a transaction.
func (s *service) create(store string, first, last int64) {
	s.t.Helper()
	create := s.Creates(func(ctx context.Context, r plant.Record) (plant.Outcome, error) {
		outcomes, err := s.db.CreateBatch(ctx, []plant.Record{r})
		return append(outcomes, 0)[0], err
	})
	for id := first; id <= last; id++ {
		r := plant.Record{Store: store, Plant: plant.Plant{ID: id, Content: plant.Content{Name: "Fern"}}}
		if outcome, err := create(context.Background(), r); outcome != plant.Created || err != nil {
			s.t.Fatalf("create plant %d: %v, %v", id, outcome, err)
		}
	}
}

// list lists the newest deliveries of an endpoint.
func (s *service) list(path, query string) []shownDelivery {
	s.t.Helper()
	return want[[]shownDelivery](s, 200, "GET", path+"/deliveries?"+query, "")
}

// replay asks for a replay of a delivery.
func (s *service) replay(path, id string, code int) shownDelivery {
	s.t.Helper()
	return want[shownDelivery](s, code, "POST", path+"/deliveries/"+id+"/replay", "")
}

// failAll gives the waiting deliveries of an endpoint the status failed.
func (s *service) failAll(path string) {
	s.t.Helper()
	found, err := s.db.Deliveries(context.Background(), storage.DeliveryFilter{
		Webhook: path[strings.LastIndex(path, "/")+1:], Status: storage.Waiting, Before: afterAllEvents, Limit: 1 << 30,
	})
	var changes []storage.DeliveryChange
	for _, d := range found {
		d.Status, d.Due = storage.Failed, time.Now().Add(keepFailed)
		changes = append(changes, storage.DeliveryChange{Delivery: d, From: storage.Waiting})
	}
	if err = errors.Join(err, s.db.ChangeDeliveries(context.Background(), changes)); err != nil {
		s.t.Fatal(err)
	}
}
