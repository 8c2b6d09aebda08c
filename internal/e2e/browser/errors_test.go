package browser

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/internal/testkit"
)

// Errors are sentences in the words of the page, and mistakes are found before they are sent.
func TestSentences(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`)
	p := openConsole(t, s)
	p.wantIDs("1")

	p.click("#add button")
	p.wantVisible("#add-error bdi", "The id is missing. Type a whole number, such as 42.")
	p.wantFocus("#add-id")
	p.add("4.5", "Fern", "")
	p.wantVisible("#add-error bdi", "The id must be a whole number, such as 42 or -7.")
	for _, tt := range []struct{ id, name, sentence string }{
		{"9223372036854775808", "Fern",
			"The id is out of range. It must be between -9223372036854775808 and 9223372036854775807."},
		{"1", "Fern", "Another plant has this id. Choose another id, or edit that plant."},
	} {
		p.add(tt.id, tt.name, "")
		p.wantVisible("#add-error bdi", tt.sentence)
	}
	eval[any](p, `document.querySelector('#add-name').value = 'x'.repeat(70000)`)
	p.typeIn("#add-id", "2")
	p.click("#add button")
	p.wantVisible("#add-error bdi", "The name and tag are too long for this service. Shorten them.")

	// An empty name asks once.
	const question = "The name is empty. To create the plant without a name, press Create again."
	p.typeIn("#add-id", "2")
	p.typeIn("#add-name", backspace)
	p.click("#add button")
	p.wantText("#add-ask", question)
	s.want(t, "2", 404, "")
	p.typeIn("#add-name", "x"+backspace) // Typing is a change of mind.
	p.wantText("#add-ask", "")
	p.click("#add button")
	p.wantText("#add-ask", question)
	p.click("#add button")
	p.wantRow("2", "empty", "")
	s.want(t, "2", 200, `{"id":2,"name":""}`)

	p.add("-7", "Fern", "") // Its minus can be pasted.
	p.wantText("#status span", "Plant -7 is in the store.")
	p.wantRow("-7", "Fern", "")
	text := eval[string](p, `document.body?.innerText`)
	if strings.ContainsRune(text, '\u2212') {
		t.Error("the page has a minus that is not ASCII")
	}
	if regexp.MustCompile(`(^|\s)/(id|name|tag)\b`).MatchString(text) {
		t.Errorf("the page has a JSON pointer: %s", text)
	}
	p.wantEmptyConsole()
}

// The chart counts creates: a remove is not a bar, and several processes behind one address are added up.
func TestChartCountsCreates(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"a"}`, `{"id":2,"name":"b"}`)
	p := openConsole(t, s)
	p.waitFor("a sample", `document.querySelector('#rate').textContent === 'now 0 · peak 0'`, `document.body?.innerText`)
	samples := p.sent("/activity")
	for _, id := range []string{"1", "2"} {
		p.click(row(id) + " .remove")
		p.wantGone(row(id))
	}
	p.wantText("#count", "0")
	p.waitFor("more samples", fmt.Sprintf(`performance.getEntriesByType('resource')
		.filter((r) => r.name.endsWith('/activity')).length > %d`, samples+2), `''`)
	p.wantText("#rate", "now 0 · peak 0")
	if n := eval[int](p, `document.querySelectorAll('#chart rect').length`); n != 0 {
		t.Errorf("the chart has %d bars after removes alone", n)
	}

	got := eval[[]int](p, `import(new URL('console/activity.js', document.baseURI)).then(({ increase }) => {
		const last = new Map();
		return [['a', 100], ['b', 7], ['a', 103], ['a', 103], ['b', 9], ['c', 50], ['a', 1], ['a', 2]].map(
			([process, created]) => increase(last, { process, created: String(created) }));
	})`)
	if want := []int{0, 0, 3, 0, 2, 0, 0, 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the increases are %v, want %v", got, want)
	}
	p.wantEmptyConsole()
}

// A token with a small rate is useful: an idle page spends nothing, and an action that must wait says how long.
func TestSmallRate(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`)
	p := newPage(t)
	p.goTo(s.URL + "/")
	p.enter(testkit.IssueToken(t, s.db, "--name", "slow", "--rate", "10/m"))
	p.wantIDs("1")
	p.wantText("#count", "1")
	waitFor(t, limit/2, "samples of the chart", func() (bool, string) { return p.sent("/activity") >= 5, "" })
	if n := p.sent("/plants"); n != 1 {
		t.Errorf("the idle page sent %d requests that spend the rate, want the list alone", n)
	}
	p.wantText("#chart-note", "")
	p.wantGone(".failure")
	s.create(t, `{"id":2,"name":"Fern"}`)
	p.wantText("#count", "2") // without a request that spends the rate
	p.wantVisible("#refresh", "Refresh: list changed")

	p.typeIn("#search-text", "2") // It needs two requests, for the id and for the text.
	p.wantIDs("2")
	p.wantEmptyConsole()
}

// A search that needs several requests ends with a token that may send one at a time. What was received is kept.
func TestSearchWithSmallestBurst(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":12,"name":"Aloe"}`, `{"id":13,"name":"No. 12"}`, `{"id":60,"name":"Tree aloe"}`)
	var first atomic.Int32
	address := s.proxy(t, func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			if query.Get("q") == "aloe" && query.Get("after") == "" {
				// A real search ends a page after 10,000 plants. This one ends after the first.
				query.Set("limit", "1")
				r.URL.RawQuery = query.Encode()
				first.Add(1)
			}
			forward.ServeHTTP(w, r)
		})
	})
	p := newPage(t)
	p.goTo(address + "/")
	p.enter(testkit.IssueToken(t, s.db, "--name", "slow", "--rate", "20/m", "--burst", "1"))
	p.wantIDs("12", "13", "60")
	p.typeIn("#search-text", "12")
	p.wantIDs("12", "13")
	p.typeIn("#search-text", "aloe")
	p.wantIDs("12", "60")
	if n := first.Load(); n > 2 {
		t.Errorf("the first page of the search was requested %d times, want once, or twice after a wait", n)
	}
	p.wantEmptyConsole()
}

// An action that must wait for the rate of the token says how long, and goes on by itself.
func TestWaitForRate(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`, `{"id":2,"name":"Fern"}`)
	var refused sync.Map
	address := s.proxy(t, func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Method + " " + r.URL.Query().Get("q")
			if _, again := refused.LoadOrStore(key, true); !again && (key == "GET fern" || r.Method != "GET") {
				refuse(w)
				return
			}
			forward.ServeHTTP(w, r)
		})
	})
	p := newPage(t)
	p.goTo(address + "/")
	p.enter(s.Token)
	p.wantIDs("1", "2")
	p.typeIn("#search-text", "fern")
	p.wantVisible("#list-error bdi", "This token has used up its requests for now.")
	p.waitFor("the time to wait",
		`/^Continuing in [1-5] s[.]$/.test(document.querySelector('#list-error .retry')?.textContent)`,
		`document.body?.innerText`)
	p.wantIDs("2")
	p.wantGone("#list-error .failure")
	p.add("3", "Pilea", "")
	p.waitFor("the time to wait", `/Continuing in [1-5] s[.]$/.test(document.querySelector('#waiting')?.textContent)`,
		`document.body?.innerText`)
	p.wantText("#status span", "Plant 3 is in the store.")
	s.want(t, "3", 200, `{"id":3,"name":"Pilea"}`)
	p.click(row("2") + " .edit")
	p.typeIn(row("2")+" .f-name textarea", "Tree fern"+enter)
	p.wantVisible("#waiting")
	p.wantRow("2", "Tree fern", "")
	p.click(row("2") + " .remove")
	p.wantText("#status span", "Plant 2 is removed.")
	p.wantEmptyConsole()
}

// The chart stops with a reason while the service fails, and goes on.
func TestChartStops(t *testing.T) {
	s := serve(t)
	var fail atomic.Bool
	address := s.proxy(t, func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/activity" && fail.Load() {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, `{"error":50303,"message":"no database"}`)
				return
			}
			forward.ServeHTTP(w, r)
		})
	})
	p := newPage(t)
	p.goTo(address + "/")
	p.enter(s.Token)
	p.wantText("#rate", "now 0 · peak 0")
	fail.Store(true)
	p.wantText("#chart-note", "Stopped. The database is not available. Nothing was stored.")
	fail.Store(false)
	p.wantText("#chart-note", "")
	p.wantEmptyConsole()
}
