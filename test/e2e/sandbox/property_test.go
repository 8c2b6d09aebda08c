package sandbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"plantstore/test/testkit"
)

// Clients of 200 sandboxes on 64 connections see exactly what they did in each.
func TestIsolation(t *testing.T) {
	t.Parallel()
	const boxes, conns, turns, steps = 200, 64, 3, 18 // fewer requests than a token may send at once
	testkit.OnEachEngine(t, func(t *testing.T, s *testkit.Server) {
		free := make(chan *model, boxes)
		for i := range boxes {
			m := &model{T: t, box: newBox(t, s, ""), name: fmt.Sprint("plant of ", i), plants: map[int]string{}}
			for id, p := range decode[[]json.RawMessage](t, send(t, m.Target, "GET", "/plants", "").Body) {
				m.plants[id+1] = string(p)
			}
			m.seed, m.journal, m.numbered = maps.Clone(m.plants), []entry{{1, "GET", "/plants", 200, ""}}, 1
			free <- m
		}
		var all sync.WaitGroup
		for i := range conns {
			random, c := rand.New(rand.NewPCG(1, uint64(i))), &conn{url: s.URL}
			all.Go(func() {
				for range boxes * turns / conns {
					m := <-free
					m.conn, m.Rand = c, random
					for range steps {
						m.step()
					}
					free <- m
				}
			})
		}
		all.Wait()
	}, "--sandbox", "--sandbox-rate", "1000/s")
}

// model is what a sandbox must have. One client uses it at a time.
type model struct {
	*testing.T
	*rand.Rand
	box
	conn         *conn
	name         string         // of its plants, which no other has
	plants, seed map[int]string // JSON
	rules        []*rule
	journal      []entry // the oldest first
	numbered     int
}

// fault is as a preference, as members of a rule, and what it does.
type fault struct {
	prefer, members string
	status          int
	after, cut      bool
}

var faults = []fault{
	{prefer: "code=503", members: `"code":503`, status: 503},
	{prefer: "code=404", members: `"code":404`, status: 404},
	{prefer: "code=503; when=after", members: `"code":503,"when":"after"`, status: 503, after: true},
	{prefer: "drop", members: `"drop":true`},
	{prefer: "drop; when=after", members: `"drop":true,"when":"after"`, after: true},
	{prefer: "truncate", members: `"truncate":true`, cut: true},
	{prefer: "truncate; when=after", members: `"truncate":true,"when":"after"`, after: true, cut: true},
}

type rule struct {
	fault
	method, path string
	times, left  int
}

// step sends a random request.
func (m *model) step() {
	id := m.IntN(15)
	path, plant := fmt.Sprint("/plants/", id), fmt.Sprintf(`{"id":%d,"name":"%s %d"}`, id, m.name, m.IntN(3))
	switch n := m.IntN(20); {
	case n < 6:
		m.change("POST", "/plants", plant, id)
	case n < 8:
		m.change("GET", path, "", id)
	case n < 10:
		m.change("GET", "/plants", "", id)
	case n < 12:
		m.change("PUT", path, plant, id)
	case n < 14:
		m.change("DELETE", path, "", id)
	case n == 14:
		m.want("POST", "/sandbox/reset", "", 204, "")
		m.plants = maps.Clone(m.seed)
	case n == 15:
		m.rules = nil
		for range m.IntN(3) {
			r := &rule{faults[m.IntN(len(faults))], oneOf(m, "GET", "POST", "PUT", "DELETE"),
				oneOf(m, "/plants", "/plants/{id}"), 1 + m.IntN(3), 0}
			m.rules = append(m.rules, r)
		}
		sent := m.encodeRules()
		for _, r := range m.rules {
			r.left = r.times
		}
		m.want("PUT", "/faults", strings.ReplaceAll(sent, `,"left":0`, ""), 200, m.encodeRules())
	case n == 16:
		m.want("GET", "/faults", "", 200, m.encodeRules())
	case n == 17:
		m.want("DELETE", "/faults", "", 204, "")
		m.rules = nil
	case n == 18:
		m.want("DELETE", "/requests", "", 204, "")
		m.journal = nil
	default:
		got := journal(m.T, m.box)
		slices.Reverse(got)
		if !slices.Equal(got, m.journal) {
			m.Errorf("the journal of %s is\n%v, want\n%v", m.name, got, m.journal)
		}
	}
}

func oneOf(m *model, words ...string) string { return words[m.IntN(len(words))] }

// want sends a request and compares its response.
func (m *model) want(method, path, body string, status int, text string, headers ...string) {
	a, err := m.conn.send(m.Token, method, path, body, headers...)
	same := a.Body == text || status >= 400 && strings.HasPrefix(a.Body, text)
	if !same || a.Status != status || (err != nil) != (status == 0) {
		m.Errorf("%s %s %s %q of %s: %d %s %v, want %d %s", method, path, body, headers, m.name, a.Status, a.Body, err,
			status, text)
	}
}

func (m *model) encodeRules() string {
	var all []string
	for _, r := range m.rules {
		all = append(all, fmt.Sprintf(`{"method":%q,"path":%q,%s,"times":%d,"left":%d}`, r.method, r.path, r.members, r.times,
			r.left))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// change sends a request for plants, which may have a fault.
func (m *model) change(method, path, body string, id int) {
	f, headers := m.nextFault(method, path), []string(nil)
	status, text := 0, ""
	if f.prefer == "" || f.after || f.cut && method == "GET" {
		status, text = m.apply(method, body, id, path == "/plants")
	}
	m.numbered++
	e := entry{m.numbered, method, path, status, f.prefer}
	switch {
	case f.status != 0:
		e.Status, text = f.status, fmt.Sprint(`{"error":`, f.status)
		status = e.Status
	case f.cut && status == 0: // the half of an error, because nothing was changed
		e.Status = 503
	case f.prefer != "":
		if !f.cut || status == 204 {
			e.Status = 0
		}
		status, text = 0, ""
	}
	if f.own {
		headers = []string{"Prefer: " + f.prefer}
	}
	m.journal = append(m.journal, e)
	m.want(method, path, body, status, text, headers...)
}

// nextFault returns a fault of the request, or that of the rule that it uses.
func (m *model) nextFault(method, path string) (f struct {
	fault
	own bool
}) {
	if m.IntN(4) == 0 {
		f.fault, f.own = faults[m.IntN(len(faults))], true
		return f
	}
	for _, r := range m.rules {
		if r.method == method && (r.path == "/plants") == (path == "/plants") && r.left > 0 {
			r.left--
			f.fault = r.fault
			break
		}
	}
	return f
}

// apply executes a request, and returns its status and its body, or the beginning of an Error.
func (m *model) apply(method, plant string, id int, all bool) (status int, text string) {
	stored := m.plants[id]
	switch {
	case all && method == "GET":
		var page []string
		for _, id := range slices.Sorted(maps.Keys(m.plants)) {
			page = append(page, m.plants[id])
		}
		return 200, "[" + strings.Join(page, ",") + "]"
	case method == "POST" && stored != "" && stored != plant:
		return 400, `{"error":40009`
	case method == "POST":
		m.plants[id] = plant
		return 200, strings.Replace(plant, fmt.Sprintf(`"id":%d,`, id), "", 1)
	case stored == "":
		return 404, `{"error":40401`
	case method == "DELETE":
		delete(m.plants, id)
		return 204, ""
	case method == "PUT":
		m.plants[id] = plant
		return 200, plant
	}
	return 200, stored
}

func decode[T any](t *testing.T, text string) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Errorf("%v in %s", err, text)
	}
	return value
}
