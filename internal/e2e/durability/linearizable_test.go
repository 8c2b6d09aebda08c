package durability

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"plantstore/internal/testkit"
)

var linearFor = flag.Duration("linear", 0, "how long TestLinearizable goes on; 0 for one round on each engine")

const (
	linearClients = 64
	linearIDs     = 24
	linearRound   = 3 * time.Second
	linearLeast   = 6000                  // answers in a round
	linearKills   = 3                     // in a round, at least: a slow machine takes long for each
	linearLie     = 2000                  // answers that show a lie
	linearPause   = 40 * time.Millisecond // between two requests of a client, at most
	linearCheck   = time.Minute           // to judge a round: a right one takes a second
)

// operation is what a client asks of one id, and outcome is what it hears. A plant is written as the end of
// its JSON, from its name on; "" is no plant.
type operation struct {
	id    int
	kind  string // POST, GET, PUT, DELETE
	plant string // that is sent
	match string // the plant that If-Match names; "" where it is not sent
}

type outcome struct {
	number int    // the status, or the number of an Error
	plant  string // that is read
}

// unknown is the outcome of a write that was not answered, or with 50302. It has been done by the time at
// which the operation ends in the history, or never will be.
var unknown = outcome{}

// plantModel is one id: it has a plant, or none.
var plantModel = porcupine.NondeterministicModel{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		histories := map[int][]porcupine.Operation{}
		for _, o := range all {
			id := o.Input.(operation).id
			histories[id] = append(histories[id], o)
		}
		return slices.Collect(maps.Values(histories))
	},
	Init: func() []any { return []any{""} },
	Step: func(state, input, output any) []any {
		now, op, out := state.(string), input.(operation), output.(outcome)
		right, next := step(now, op)
		switch {
		case out == unknown && next != now:
			return []any{now, next}
		case out == unknown || out == right:
			return []any{next}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string {
		op, out := input.(operation), output.(outcome)
		text := fmt.Sprintf("%s %d %s", op.kind, op.id, op.plant)
		if op.match != "" {
			text += " If-Match " + op.match
		}
		if out == unknown {
			return text + " → ?"
		}
		return fmt.Sprintf("%s → %d %s", text, out.number, out.plant)
	},
}

// step is what an operation does to an id, and the one right answer: the promises of the service.
func step(now string, op operation) (right outcome, next string) {
	switch {
	case op.kind == "POST" && (now == "" || now == op.plant):
		return outcome{number: 200}, op.plant
	case op.kind == "POST":
		return outcome{number: 40009}, now
	case now == "":
		return outcome{number: 40401}, now
	case op.kind == "GET":
		return outcome{200, now}, now
	case op.match != "" && op.match != now:
		return outcome{number: 41201}, now
	case op.kind == "PUT":
		return outcome{number: 200}, op.plant
	}
	return outcome{number: 204}, "" // DELETE
}

// judge says whether an order of the operations explains all that was heard of each id.
func judge(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(plantModel.ToModel(), history, linearCheck)
}

// draw writes a page that shows where a history breaks, and leaves it for a person to look at.
func draw(t *testing.T, history []porcupine.Operation) (page string) {
	t.Helper()
	f, err := os.CreateTemp("", "plantstore-linear-*.html")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	model := plantModel.ToModel()
	_, info := porcupine.CheckOperationsVerbose(model, history, linearCheck)
	if err := porcupine.Visualize(model, info, f); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// life is a server from its start to its end.
type life struct {
	testkit.Target
	died atomic.Int64 // when it was certainly gone; 0 while it lives
}

// contest is clients that all work on the same few ids until they are told to stop.
type contest struct {
	t       *testing.T
	first   int                     // of the ids
	places  []*atomic.Pointer[life] // where servers are, each with the one that lives there now
	begun   time.Time
	clients []*contestant
	end     chan struct{}
	stop    func()       // ends the clients and waits for them
	heard   atomic.Int64 // answers
}

// contend starts the clients, on ids that are free.
func contend(t *testing.T, first int, targets ...testkit.Target) *contest {
	t.Helper()
	c := &contest{t: t, first: first, begun: time.Now(), end: make(chan struct{})}
	for _, to := range targets {
		place := new(atomic.Pointer[life])
		place.Store(&life{Target: to})
		c.places = append(c.places, place)
	}
	var wg sync.WaitGroup
	c.stop = sync.OnceFunc(func() {
		close(c.end)
		wg.Wait()
	})
	t.Cleanup(c.stop)
	for range linearClients {
		one := c.client()
		wg.Go(one.work)
	}
	return c
}

func (c *contest) client() *contestant {
	one := &contestant{contest: c, n: len(c.clients), conns: map[*life]*wire{}}
	c.clients = append(c.clients, one)
	return one
}

func (c *contest) now() int64 { return int64(time.Since(c.begun)) }

// history is what all clients did. A write without an answer may be done at any time after it was sent, or
// never. Where the database is a part of the server, the end of the server is the last moment for it.
func (c *contest) history(embedded bool) (all []porcupine.Operation) {
	end := c.now() + 1
	for _, one := range c.clients {
		for _, e := range one.done {
			died := e.on.died.Load()
			switch {
			case e.Output != unknown:
			case died > 0 && e.Call >= died: // nobody heard it
				continue
			case died > 0 && embedded:
				e.Return = died
			default:
				e.Return = end
			}
			all = append(all, e.Operation)
		}
	}
	return all
}

// entry is an operation, and the server that was asked.
type entry struct {
	on *life
	porcupine.Operation
}

// contestant is one client: what it did, and a connection to each server.
type contestant struct {
	*contest
	n     int
	sent  int
	conns map[*life]*wire
	done  []entry
}

type wire struct {
	net.Conn
	in *bufio.Reader
}

func (c *contestant) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

func (c *contestant) work() {
	defer c.close()
	for {
		select {
		case <-c.end:
			return
		case <-time.After(rand.N(linearPause)):
		}
		on := c.places[rand.IntN(len(c.places))].Load()
		id := c.first + rand.IntN(linearIDs)
		c.sent++
		mine := fmt.Sprintf(`"name":"%d of client %d"}`, c.sent, c.n)
		if c.sent%2 == 0 {
			mine = fmt.Sprintf(`"name":"%d of client %d","tag":"even"}`, c.sent, c.n)
		}
		switch rand.IntN(16) {
		case 0, 1, 2, 3:
			c.read(on, id)
		case 4:
			c.list(on)
		case 5, 6, 7:
			c.write(on, operation{id: id, kind: "POST", plant: mine}, "")
		case 8: // what is there already
			if seen, _ := c.read(on, id); seen != "" {
				c.write(on, operation{id: id, kind: "POST", plant: seen}, "")
			}
		case 9, 10:
			c.write(on, operation{id: id, kind: "PUT", plant: mine}, "")
		case 11, 12:
			if seen, tag := c.read(on, id); seen != "" {
				c.write(on, operation{id: id, kind: "PUT", plant: mine, match: seen}, tag)
			}
		case 13, 14:
			if seen, tag := c.read(on, id); seen != "" {
				c.write(on, operation{id: id, kind: "DELETE", match: seen}, tag)
			}
		case 15:
			c.write(on, operation{id: id, kind: "DELETE"}, "")
		}
	}
}

// read returns the plant that was read, with its ETag; "" where there is none, or no answer.
func (c *contestant) read(on *life, id int) (plant, tag string) {
	called := c.now()
	a, _ := c.ask(on, "GET", fmt.Sprint("/plants/", id), "", "")
	number := c.number(a)
	switch number {
	case 200:
		plant = strings.TrimPrefix(a.Body, fmt.Sprintf(`{"id":%d,`, id))
	case 40401:
	default:
		return "", ""
	}
	c.note(on, called, operation{id: id, kind: "GET"}, outcome{number, plant})
	return plant, a.Header.Get("ETag")
}

// list reads all ids at once: as many reads at the same time.
func (c *contestant) list(on *life) {
	called := c.now()
	a, _ := c.ask(on, "GET", fmt.Sprintf("/plants?limit=%d&after=%d", linearIDs, c.first-1), "", "")
	if c.number(a) != 200 {
		return
	}
	var page []json.RawMessage
	if err := json.Unmarshal([]byte(a.Body), &page); err != nil {
		c.t.Errorf("list: %s: %v", a.Body, err)
	}
	for id := c.first; id < c.first+linearIDs; id++ {
		out := outcome{number: 40401}
		for _, text := range page {
			if plant, ok := strings.CutPrefix(string(text), fmt.Sprintf(`{"id":%d,`, id)); ok {
				out = outcome{200, plant}
			}
		}
		c.note(on, called, operation{id: id, kind: "GET"}, out)
	}
}

func (c *contestant) write(on *life, op operation, tag string) {
	path, body := fmt.Sprint("/plants/", op.id), ""
	switch op.kind {
	case "POST":
		path, body = "/plants", fmt.Sprintf(`{"id":%d,%s`, op.id, op.plant)
	case "PUT":
		body = "{" + op.plant
	}
	called := c.now()
	a, sent := c.ask(on, op.kind, path, body, tag)
	switch number := c.number(a); {
	case !sent, number == 429, number == 50301, number == 50303, number == 50305: // nothing was done
	case number == 0, number == 50302:
		c.note(on, called, op, unknown)
	case number == 200 && !strings.HasSuffix(a.Body, op.plant):
		c.t.Errorf("%s of plant %d with %s: answered %s", op.kind, op.id, op.plant, a.Body)
	default:
		c.note(on, called, op, outcome{number: number})
	}
}

// number is the status of an answer, or the number of its Error; 0 where there is no answer.
func (c *contestant) number(a testkit.Response) int {
	if a.Status == 401 || a.Status >= 500 && a.Status != 503 {
		c.t.Errorf("answered %d %s", a.Status, a.Body)
	}
	if a.Status == 429 || a.Number() == 0 {
		return a.Status
	}
	return a.Number()
}

func (c *contestant) note(on *life, called int64, op operation, out outcome) {
	c.done = append(c.done, entry{on, porcupine.Operation{ClientId: c.n, Input: op, Call: called, Output: out, Return: c.now()}})
	c.heard.Add(1)
}

// ask sends a request once: the library would repeat some when a connection ends. It reports whether
// the server can have heard it.
func (c *contestant) ask(on *life, method, path, body, match string) (a testkit.Response, sent bool) {
	if on.died.Load() > 0 {
		return a, false // another process may have its port by now
	}
	to := c.conns[on]
	if to == nil {
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(on.URL, "http://"), 5*time.Second)
		if err != nil {
			return a, false
		}
		to = &wire{conn, bufio.NewReader(conn)}
		c.conns[on] = to
	}
	to.SetDeadline(time.Now().Add(10 * time.Second))
	if match != "" {
		match = "If-Match: " + match + "\r\n"
	}
	_, err := fmt.Fprintf(to, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		method, path, on.Token, match, len(body), body)
	var response *http.Response
	if err == nil {
		response, err = http.ReadResponse(to.in, nil)
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(response.Body)
	}
	if err != nil {
		to.Close()
		delete(c.conns, on)
		return testkit.Response{}, true
	}
	return testkit.Response{Status: response.StatusCode, Header: response.Header, Body: string(text)}, true
}

// goOn says whether a round has to: a slow machine takes longer for the answers that it needs.
func (c *contest) goOn() bool {
	passed := time.Since(c.begun)
	return passed < linearRound || c.heard.Load() < linearLeast && passed < 10*linearRound
}

// kill ends the server at a place and returns when it is certainly gone.
func (c *contest) kill(place int, p *testkit.Server) {
	p.Kill()
	c.places[place].Load().died.Store(c.now())
}

// Whatever 64 clients do to the same ids at once, while servers are killed under them, there is an order of what
// they did, one after the other, that explains every answer that any of them got.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			embedded := e.Name == "sqlite"
			db, servers := e.Database(t), 2
			if embedded {
				servers = 1
			}
			all := testkit.StartReplicas(t, db, servers)
			counts, kills, round := map[string]int{}, 0, 0
			for begun := time.Now(); round == 0 || time.Since(begun) < *linearFor; round++ {
				var targets []testkit.Target
				for _, p := range all {
					targets = append(targets, p.Target())
				}
				c := contend(t, round*linearIDs, targets...)
				for ended := kills + linearKills; c.goOn() || kills < ended; {
					time.Sleep(200*time.Millisecond + rand.N(600*time.Millisecond))
					if time.Since(c.begun) > linearRound && kills >= ended {
						continue // what is cut off by more kills would be hard to judge
					}
					place := kills % servers
					c.kill(place, all[place])
					kills++
					next := testkit.Start(t, db)
					next.Token = all[place].Token
					all[place] = next
					c.places[place].Store(&life{Target: next.Target()})
				}
				c.stop()
				// What is there in the end is a part of the history too.
				last := c.client()
				for _, place := range c.places {
					last.list(place.Load())
				}
				last.close()
				if want := linearIDs * servers; len(last.done) != want {
					t.Errorf("%d readings in the end, want %d", len(last.done), want)
				}
				history := c.history(embedded)
				switch judge(history) {
				case porcupine.Illegal:
					t.Fatalf("no order explains the %d answers of round %d: see %s", len(history), round, draw(t, history))
				case porcupine.Unknown:
					t.Fatalf("the %d answers of round %d are not judged after %v: see %s", len(history), round, linearCheck, draw(t, history))
				}
				for _, o := range history {
					counts[said(o)]++
				}
			}
			wantVaried(t, counts)
			t.Logf("%d kills, %d ids; what was answered how often: %v", kills, round*linearIDs, counts)
		})
	}
}

// said names what was asked and what was answered.
func said(o porcupine.Operation) string {
	op := o.Input.(operation)
	if op.match != "" {
		op.kind += " If-Match"
	}
	if o.Output == unknown {
		return op.kind + " ?"
	}
	return fmt.Sprint(op.kind, " ", o.Output.(outcome).number)
}

// wantVaried fails where a history is too plain to show anything.
func wantVaried(t *testing.T, counts map[string]int) {
	t.Helper()
	for what, least := range map[string]int{
		"GET 200": 100, "GET 40401": 100, "POST 200": 20, "POST 40009": 20, "POST ?": 1,
		"PUT 200": 20, "PUT 40401": 5, "PUT If-Match 200": 10, "PUT If-Match 41201": 1,
		"DELETE 204": 5, "DELETE 40401": 5, "DELETE If-Match 204": 10,
	} {
		if counts[what] < least {
			t.Errorf("%s was answered %d times, expected %d at least: that was no contest", what, counts[what], least)
		}
	}
}

// A proxy in front of the real server lies in one way, and the history shows it.
func TestLinearizableCatchesALiar(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, testkit.Engines[0].Database(t))
	to, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	for n, liar := range []struct {
		name string
		want porcupine.CheckResult
		http.Handler
	}{
		{"honest", porcupine.Ok, proxy},
		{"old reads", porcupine.Illegal, oldReads(proxy)},
		{"two creators", porcupine.Illegal, twoCreators(proxy)},
		{"lost updates", porcupine.Illegal, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("If-Match")
			proxy.ServeHTTP(w, r)
		})},
	} {
		t.Run(liar.name, func(t *testing.T) {
			front := httptest.NewServer(liar)
			t.Cleanup(front.Close)
			c := contend(t, n*linearIDs, testkit.Target{URL: front.URL, Token: p.Token})
			for c.goOn() && c.heard.Load() < linearLie {
				time.Sleep(10 * time.Millisecond)
			}
			c.stop()
			if got := judge(c.history(true)); got != liar.want {
				t.Errorf("the history of %d answers is judged %s, want %s", c.heard.Load(), got, liar.want)
			}
		})
	}
}

// oldReads answers five reads of a plant as the first of them was answered.
func oldReads(next http.Handler) http.HandlerFunc {
	var mu sync.Mutex
	known, uses := map[string]*httptest.ResponseRecorder{}, map[string]int{}
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" || r.URL.RawQuery != "" {
			next.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if uses[r.URL.Path]++; uses[r.URL.Path]%5 == 1 {
			known[r.URL.Path] = httptest.NewRecorder()
			next.ServeHTTP(known[r.URL.Path], r)
		}
		repeat(w, known[r.URL.Path])
	}
}

// twoCreators tells everybody that their plant was created.
func twoCreators(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "POST" {
			next.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		a := httptest.NewRecorder()
		next.ServeHTTP(a, r)
		if a.Code == 400 {
			w.Write(body)
			return
		}
		repeat(w, a)
	}
}

func repeat(w http.ResponseWriter, a *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), a.Header())
	w.WriteHeader(a.Code)
	w.Write(a.Body.Bytes())
}

// The judge itself: histories made by hand, each operation with when it began and ended.
func TestLinearizableJudges(t *testing.T) {
	type history = []porcupine.Operation
	do := func(began, ended int64, op operation, out outcome) porcupine.Operation {
		return porcupine.Operation{Input: op, Output: out, Call: began, Return: ended}
	}
	var (
		createA, createB = operation{kind: "POST", plant: "a"}, operation{kind: "POST", plant: "b"}
		get, remove      = operation{kind: "GET"}, operation{kind: "DELETE"}
		putB             = operation{kind: "PUT", plant: "b"}
		putBoverA        = operation{kind: "PUT", plant: "b", match: "a"}
		putCoverA        = operation{kind: "PUT", plant: "c", match: "a"}
		removeA          = operation{kind: "DELETE", match: "a"}
		ok, gone         = outcome{number: 200}, outcome{number: 204}
		taken, changed   = outcome{number: 40009}, outcome{number: 41201}
		absent           = outcome{number: 40401}
		isA, isB         = outcome{200, "a"}, outcome{200, "b"}
	)
	for _, test := range []struct {
		name string
		want porcupine.CheckResult
		done history
	}{
		{"one after the other", porcupine.Ok, history{do(1, 2, createA, ok), do(3, 4, get, isA), do(5, 6, createA, ok), do(7, 8, createB, taken), do(9, 10, removeA, gone), do(11, 12, get, absent)}},
		{"a read during a write sees either", porcupine.Ok, history{do(1, 2, createA, ok), do(3, 9, putB, ok), do(4, 5, get, isA), do(6, 7, get, isB)}},
		{"a read goes back", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 9, putB, ok), do(4, 5, get, isB), do(6, 7, get, isA)}},
		{"an old read", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 4, putB, ok), do(5, 6, get, isA)}},
		{"two creators", porcupine.Illegal, history{do(1, 4, createA, ok), do(2, 3, createB, ok)}},
		{"taken by nobody", porcupine.Illegal, history{do(1, 2, createB, taken)}},
		{"a lost update", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 6, putBoverA, ok), do(4, 5, putCoverA, ok)}},
		{"one of two updates", porcupine.Ok, history{do(1, 2, createA, ok), do(3, 6, putBoverA, ok), do(4, 5, putCoverA, changed)}},
		{"changed by nobody", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 4, putBoverA, changed)}},
		{"removed twice", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 6, remove, gone), do(4, 5, remove, gone)}},
		{"lost after the answer", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 4, get, absent)}},
		{"unknown and done", porcupine.Ok, history{do(1, 9, createA, unknown), do(3, 4, get, isA)}},
		{"unknown and done late", porcupine.Ok, history{do(1, 9, createA, unknown), do(3, 4, get, absent), do(5, 6, get, isA)}},
		{"unknown and never done", porcupine.Ok, history{do(1, 9, createA, unknown), do(10, 11, get, absent)}},
		{"unknown, done and undone", porcupine.Illegal, history{do(1, 9, createA, unknown), do(3, 4, get, isA), do(5, 6, get, absent)}},
		{"unknown and done twice", porcupine.Illegal, history{do(1, 9, createA, unknown), do(2, 3, get, isA), do(4, 5, remove, gone), do(6, 7, get, isA)}},
		{"done after its server ended", porcupine.Illegal, history{do(1, 2, createA, unknown), do(3, 4, get, absent), do(5, 6, get, isA)}},
		{"nobody sent it", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 4, get, isB)}},
	} {
		if got := judge(test.done); got != test.want {
			t.Errorf("%s: judged %s, want %s", test.name, got, test.want)
		}
	}
}
