package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"plantstore/test/testkit"
)

// While the service cannot be reached, the rows stay. Once it can be reached, the list is loaded without an action.
func TestReconnects(t *testing.T) {
	const up, lost, broken = 0, 1, 2
	var state atomic.Int32
	s, p := openHurried(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		switch now := state.Load(); {
		case now == lost:
			panic(http.ErrAbortHandler)
		case now == broken && r.URL.Path == "/plants":
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"error":50001,"message":"it failed"}`)
		default:
			product.ServeHTTP(w, r)
		}
	}, numbered(25)...)
	before := ids(1, 20)
	p.wantIDs(before...)
	for _, action := range []struct {
		act  func()
		want []string
	}{
		{func() { p.click("#refresh") }, ids(1, 20)},
		{func() { p.click("#next") }, ids(21, 25)},
		{func() { p.search("plant 17") }, ids(17, 17)},
	} {
		state.Store(lost)
		action.act()
		p.wantText("#away",
			"The service cannot be reached. Reconnecting… The list shows the plants that were loaded before.")
		p.wantIDs(before...)
		state.Store(up)
		p.wantIDs(action.want...)
		p.wantGone("#away")
		before = action.want
	}
	state.Store(lost)
	p.add("26", "Fern", "")
	p.wantVisible("#add-error .explain", "The plant may have been stored. Creating the same plant again is safe.")
	state.Store(up)
	p.click("#add button")
	p.wantVisible("#status span", "Plant 26 is in the store.")
	p.wantGone("#add-error .failure")
	s.want(t, `{"id":26,"name":"Fern"}`)

	state.Store(broken)
	p.click("#refresh")
	p.wantVisible("#list-error bdi", "The service failed. If it happens again, tell the operator.")
	p.wantIDs("17")
	p.edit("17", "not saved")
	state.Store(up) // What is edited by now is not replaced.
	p.wantVisible("#refresh", "Refresh: list changed")
	p.wantGone("#list-error .failure")
	p.wantValue(row("17")+" .f-name textarea", "not saved")
	p.click(row("17")+" button", "Cancel")
}

// Several plants can be selected, with Shift for a range, and removed. Undo restores those whose id is free, each where
// it was, also after a removal that succeeded without a response, and not with another token.
func TestUndo(t *testing.T) {
	testkit.Long(t)
	var once sync.Once
	s, p := openHurried(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		if r.Method == "DELETE" {
			once.Do(func() {
				product.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			})
		}
		product.ServeHTTP(w, r)
	}, numbered(9)...)
	p.click(row("2") + " input")
	p.clickWith(chromedp.ModifierShift, row("5")+" input")
	p.click(row("4") + " input")
	p.wantText("#selected", "3 plants selected")
	p.click("#remove-selected")
	p.wantText("#status span", "3 plants are removed.")
	p.wantIDs("1", "4", "6", "7", "8", "9")
	p.wantText("#count", "6")
	s.create(t, `{"id":3,"name":"another"}`)
	p.click("#status button", "Undo")
	p.wantText("#list-error .explain", "1 plant not restored")
	p.wantText("#list-error li", "Plant 3: Its id belongs to another plant by now.")
	s.want(t, `{"id":2,"name":"Plant 2","tag":""}`, `{"id":3,"name":"another"}`, `{"id":5,"name":"Plant 5","tag":""}`)
	p.click("#list-error button", "Close")
	p.click("#refresh")
	p.wantIDs(ids(1, 9)...)

	p.remove("1")
	p.wantVisible("#status span", "Plant 1 is removed.")
	p.remove("2")
	p.wantVisible("#status span", "2 plants are removed.")
	p.add("-1", "Olea", "")
	p.wantVisible("#status span", "Plant -1 is in the store.") // It does not replace the notice with Undo.
	p.click("#status button", "Undo")
	p.wantIDs(append([]string{"-1"}, ids(1, 9)...)...)
	p.wantGone("#status button")
	s.want(t, `{"id":1,"name":"Plant 1","tag":""}`, `{"id":2,"name":"Plant 2","tag":""}`)
	p.remove("8") // What is restored is not counted again.
	p.wantVisible("#status span", "Plant 8 is removed.")
	p.goTo("/#rows=10&after=8")
	p.do(chromedp.Reload())
	p.wantText("#position", "Page 2 · ids 9 to 9")
	p.remove("9") // It was the last plant of the page, so the one before it is shown.
	p.wantIDs(append([]string{"-1"}, ids(1, 7)...)...)
	p.click("#sign-out")
	p.wantGone("#status span")
}

func TestSearch(t *testing.T) {
	_, p := openConsole(t, `{"id":`+least+`,"name":"Monstera","tag":"climber"}`,
		`{"id":3,"name":"Ficus","tag":"MONUMENT"}`, `{"id":42,"name":"Aloe","tag":"succulent"}`, `{"id":100,"name":"No. 42"}`)
	p.wantIDs(least, "3", "42", "100")
	p.wantText("#list-order", "Sorted by id")
	p.wantVisible("th[aria-sort=ascending]", "Id")

	p.click(row("42") + " .tag")
	p.wantIDs("42")
	p.wantVisible("#tag-filter bdi", "succulent")
	p.wantVisible("#tag-filter:focus")
	p.search("ficus") // Both apply.
	p.wantText("#empty p", "No plant with this tag matches ficus.")
	p.do(chromedp.Reload())
	p.click("#tag-filter")
	p.wantIDs("3")
	p.wantGone("#tag-filter")
	p.wantText("#found", "1")
	p.search("")
	p.wantIDs(least, "3", "42", "100")

	p.click("#search-text")
	p.press("mon") // It searches without Enter, in names and tags, ignoring case.
	p.wantIDs(least, "3")
	p.search("42") // An id comes first.
	p.wantIDs("42", "100")
	p.wantText("#list-order", "Plant 42 first, then sorted by id")
	p.search(least)
	p.wantIDs(least)
	p.search("99999999999999999999") // not an int64
	p.wantText("#empty p", "No plant matches 99999999999999999999.")
	p.search(strings.Repeat("x", 1001))
	p.wantVisible("#list-error bdi", "The search is too long. Shorten it to 1000 characters.")
	p.search("nothing like it")
	p.wantText("#empty p", "No plant matches nothing like it.")
	p.click("#empty button", "Show all plants")
	p.wantIDs(least, "3", "42", "100")
	p.wantValue("#search-text", "")
	p.do(chromedp.NavigateBack())
	p.wantText("#empty p", "No plant matches nothing like it.")
	p.do(chromedp.Reload())
	p.wantText("#empty p", "No plant matches nothing like it.")
	p.wantValue("#search-text", "nothing like it")
}

// A search follows short and empty pages to the end, unless it is stopped. If it must wait for the rate of the token,
// it keeps the pages that it has received; with a token that allows few requests, it asks whether to go on. A response
// to an earlier search never replaces that of a later one: the earlier request is cancelled. What waits to be sent at a
// sign-out, and what could be undone, does not reach the store that is opened next.
func TestPendingRequests(t *testing.T) {
	testkit.Long(t)
	var requests, creates, endless atomic.Int32
	var cancelled atomic.Bool
	// A real search ends a page after 10,000 plants. That for aloe ends it after every 10 ids, and refuses every second
	// request. All creates are refused.
	s, p := openHurried(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		query := r.URL.Query()
		switch {
		case r.Method == "POST":
			creates.Add(1)
			refuse(w)
		case query.Get("q") == "late":
			<-r.Context().Done()
			cancelled.Store(true)
		case query.Get("q") == "endless":
			endless.Add(1)
			w.Header().Set("Link", `</plants?after=`+fmt.Sprint(endless.Load())+`>; rel="next"`)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `[]`)
		case query.Get("q") != "aloe":
			product.ServeHTTP(w, r)
		case requests.Add(1)%2 == 1:
			refuse(w)
		default:
			after := 0
			fmt.Sscan(query.Get("after"), &after)
			w.Header().Set("Content-Type", "application/json")
			if after < 60 {
				w.Header().Set("Link",
					fmt.Sprintf(`<https://public.example/plants?after=%d&limit=20&q=aloe>; rel="next"`, after+10))
			}
			if after == 0 || after == 50 {
				fmt.Fprintf(w, `[{"id":%d,"name":"Aloe"}]`, after+1)
			} else {
				fmt.Fprint(w, `[]`)
			}
		}
	}, `{"id":1,"name":"Aloe"}`, `{"id":2,"name":"Fern"}`)
	p.search("late")
	p.waitFor("the first search", `location.hash === '#q=late'`, `location.hash`)
	p.search("aloe")
	testkit.WaitFor(t, "the first search to be cancelled", cancelled.Load)
	p.wantIDs("1", "51")
	p.wantGone(".rest")
	if got, want := requests.Load(), int32(2*7); got != want {
		t.Errorf("the search sent %d requests, want 2 for each of 7 pages", got)
	}

	p.search("endless")
	p.wantVisible("#searched")
	p.click("#stop")
	p.wantText(".rest p", "Nothing found yet. Searched 2 of 2 plants.")
	stopped := endless.Load()
	p.click("#further")
	p.click("#stop")
	if endless.Load() == stopped {
		t.Error("the search does not go on after it was stopped")
	}

	p.search("fern")
	p.wantIDs("2")
	p.remove("2")
	p.wantVisible("#status button", "Undo")
	p.add("3", "Pilea", "")
	p.wantVisible("#waiting")
	p.click("#sign-out")
	p.enter(s.issue(t, "--name", "other", "--store", "other", "--rate", "10/s"))
	p.wantText("#session-store", "other")
	p.wantText("#count", "0")
	p.wantGone("#status button")
	if hash := eval[string](p, `location.hash`); hash != "" {
		t.Errorf("the other store opens at %s", hash)
	}
	before := creates.Load()
	eval[any](p, `new Promise((resolve) => setTimeout(resolve, 7000))`) // longer than the create would wait
	if now := creates.Load(); now != before {
		t.Errorf("%d creates were sent to the other store", now-before)
	}
	stopped = endless.Load()
	p.search("endless")
	p.wantVisible("#further", "Continue searching")
	if got := endless.Load() - stopped; got != 4 {
		t.Errorf("with 10 requests a second, a search sent %d, want 4", got)
	}
}
