package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"plantstore/internal/testkit"
)

// While the service cannot be reached, the rows stay. Once it can be reached, the list is loaded without an action.
func TestReconnects(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.createNumbered(t, 25)
	const up, lost, broken = 0, 1, 2
	var state atomic.Int32
	s.intercept(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		switch now := state.Load(); {
		case now == lost:
			panic(http.ErrAbortHandler)
		case now == broken && r.URL.Path == "/plants":
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"error":50001,"message":"it failed"}`)
		default:
			product.ServeHTTP(w, r)
		}
	})
	p := newPage(t, s.front)
	p.hurry()
	p.open(s.Token)
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

// A page whose rows are all removed shows what is left of the store. Only an empty store is said to be empty.
func TestEmptiedPage(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s := serve(t)
	s.createNumbered(t, 65)
	p := openConsole(t, s)
	p.wantIDs(ids(1, 20)...)
	eval[any](p, `new MutationObserver(() => {
		const claim = document.querySelector('#empty p, .rest p');
		if (claim) (window.claims ??= []).push(claim.textContent);
	}).observe(document.body, { childList: true, subtree: true }); null`)
	removeAll := func() {
		t.Helper()
		p.click("#select-all")
		p.click("#remove-selected")
	}
	removeAll()
	p.wantIDs(ids(21, 40)...)
	p.wantText("#position", "Page 1 · ids 21 to 40")
	p.click("#next")
	p.wantIDs(ids(41, 60)...)
	removeAll()
	p.wantIDs(ids(61, 65)...)
	p.wantText("#position", "Page 2 · ids 61 to 65")
	removeAll() // It was the last page, so the one before it is shown.
	p.wantIDs(ids(21, 40)...)
	p.wantText("#position", "Page 1 · ids 21 to 40")
	if hash := eval[string](p, `location.hash`); hash != "" {
		t.Errorf("the URL has %s, want the first page", hash)
	}
	p.choose("#limit", "10")
	p.wantIDs(ids(21, 30)...)
	p.search("plant")
	p.wantText("#list-title", "Plants found")
	p.wantIDs(ids(21, 30)...)
	removeAll()
	p.wantIDs(ids(31, 40)...)
	if claims := eval[[]string](p, `window.claims ?? []`); len(claims) > 0 {
		t.Errorf("the page said %q although plants were left", claims)
	}

	removeAll()
	p.wantText("#empty p", "No plant matches plant.")
	p.click("#show-all")
	p.wantText("#empty p", "No plants yet. The first one you add appears here.")
	s.create(t, `{"id":7,"name":"Fern"}`) // by another client
	p.wantText("#empty p", "The store has plants that are not in this list yet.")
	p.wantGone("#samples")
	p.click("#empty button", "Show them")
	p.wantIDs("7")
}

// A reload keeps the search, the page and the rows of a page; the browser's Back returns to the page before.
func TestReload(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s := serve(t)
	s.createNumbered(t, 45)
	p := openConsole(t, s)
	p.click("#next")
	p.wantText("#position", "Page 2 · ids 21 to 40")
	p.do(chromedp.Reload())
	p.wantText("#position", "Page 2 · ids 21 to 40")
	p.click("#previous")
	p.wantText("#position", "Page 1 · ids 1 to 20")
	p.do(chromedp.NavigateBack())
	p.wantText("#position", "Page 2 · ids 21 to 40")
	p.choose("#limit", "10")
	p.wantText("#position", "Page 1 · ids 1 to 10")
	p.search("plant 4")
	p.wantIDs(append([]string{"4"}, ids(40, 45)...)...)
	p.do(chromedp.Reload())
	p.wantIDs(append([]string{"4"}, ids(40, 45)...)...)
	p.wantValue("#search-text", "plant 4")
	p.wantValue("#limit", "10")
}

// Several plants can be selected, with Shift for a range, and removed. Undo brings them back as they were.
func TestRemoveSeveral(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s := serve(t)
	s.createNumbered(t, 9)
	p := openConsole(t, s)
	p.click(row("2") + " input")
	p.clickWith(chromedp.ModifierShift, row("5")+" input")
	p.click(row("4") + " input")
	p.click(row("9") + " input")
	p.wantText("#selected", "4 plants selected")
	// Plant 9 changes behind the page, so it is not the plant that the user meant.
	s.change(t, "PUT", "/plants/9", `{"name":"changed"}`)
	p.click("#remove-selected")
	p.wantText("#status span", "3 plants are removed.")
	p.wantIDs("1", "4", "6", "7", "8", "9")
	p.wantText("#list-error .explain", "1 plant not removed")
	p.wantText("#list-error li", "Plant 9: Somebody changed it in the meantime. Check it before you remove it.")
	p.wantRow("9", "changed", "")
	p.wantText("#count", "6")
	// Somebody takes the id of plant 3 before the undo.
	s.create(t, `{"id":3,"name":"another"}`)
	p.click("#status button", "Undo")
	p.wantText("#list-error .explain", "1 plant not restored")
	p.wantText("#list-error li", "Plant 3: Its id belongs to another plant by now.")
	p.wantVisible("#list-error button", "Copy as JSON")
	s.want(t, `{"id":2,"name":"Plant 2","tag":""}`, `{"id":3,"name":"another"}`, `{"id":5,"name":"Plant 5","tag":""}`)
	p.click("#list-error button", "Close")
	p.click("#refresh")
	p.wantIDs(ids(1, 9)...)

	p.click("#select-all")
	p.wantText("#selected", "9 plants selected")
	p.click("#remove-selected")
	p.wantText("#status span", "9 plants are removed.")
	p.wantVisible("#samples")
	p.click("#status button", "Undo")
	p.wantIDs(ids(1, 9)...)
}

// Undo restores a plant where it was: at both ends of a page, and in a search. It restores all plants that were removed
// one after the other, also one whose removal succeeded without a response.
func TestUndo(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s := serve(t)
	s.createNumbered(t, 30)
	var once sync.Once
	s.intercept(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		if r.Method == "DELETE" {
			once.Do(func() {
				product.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			})
		}
		product.ServeHTTP(w, r)
	})
	p := openConsole(t, s)
	undo := func(id string, shown []string) {
		t.Helper()
		p.wantIDs(shown...)
		p.remove(id)
		p.wantGone(row(id))
		s.wantNone(t, id)
		p.click("#status button", "Undo")
		p.wantIDs(shown...)
	}
	p.goTo("/#rows=10&after=10")
	p.do(chromedp.Reload())
	undo("11", ids(11, 20))
	undo("20", ids(11, 20))
	p.search("plant 2")
	undo("22", append([]string{"2"}, ids(20, 28)...))

	p.remove("22")
	p.wantGone(row("22"))
	p.search("plant 1")
	p.wantVisible(row("10"))
	p.click("#status button", "Undo")
	p.click("#status button", "Show it")
	p.wantIDs("22")

	p.goTo("/")
	p.do(chromedp.Reload())
	p.remove("1")
	p.wantVisible("#status span", "Plant 1 is removed.")
	p.remove("2")
	p.wantVisible("#status span", "2 plants are removed.")
	p.add("-1", "Olea", "")
	p.wantVisible("#status span", "Plant -1 is in the store.") // It does not replace the notice with Undo.
	p.remove("3")
	p.wantVisible("#status span", "3 plants are removed.")
	p.click("#status button", "Undo")
	p.wantIDs(append([]string{"-1"}, ids(1, 20)...)...)
	p.wantGone("#status button")
	s.want(t, `{"id":1,"name":"Plant 1","tag":""}`, `{"id":2,"name":"Plant 2","tag":""}`)
	p.remove("1") // What is restored is not counted again.
	p.wantVisible("#status span", "Plant 1 is removed.")
	p.click("#sign-out")
	p.wantGone("#status span") // Another token must not restore it.
}
