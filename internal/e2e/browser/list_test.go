package browser

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
)

// createNumbered stores plants with the ids 1 to n.
func (s service) createNumbered(t *testing.T, n int) {
	t.Helper()
	for id := 1; id <= n; id++ {
		s.create(t, fmt.Sprintf(`{"id":%d,"name":"Plant %d"}`, id, id))
	}
}

// ids returns the numbers from first to last.
func ids(first, last int) (all []string) {
	for id := first; id <= last; id++ {
		all = append(all, fmt.Sprint(id))
	}
	return all
}

// A page whose rows are all removed shows what is left of the store. Only an empty store is said to be empty.
func TestEmptiedPage(t *testing.T) {
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
	eval[any](p, `((limit) => { limit.value = '10'; limit.dispatchEvent(new Event('change')); })(
		document.querySelector('#limit'))`)
	p.wantIDs(ids(21, 30)...)
	p.typeIn("#search-text", "plant")
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
	p.wantEmptyConsole()
}

// While the service cannot be reached, the rows stay. Once it can be reached, the list is loaded without an action.
func TestReconnects(t *testing.T) {
	s := serve(t)
	s.createNumbered(t, 25)
	const up, lost, broken = 0, 1, 2
	var state atomic.Int32
	address := s.proxy(t, func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch now := state.Load(); {
			case now == lost:
				panic(http.ErrAbortHandler)
			case now == broken && r.URL.Path == "/plants":
				w.WriteHeader(http.StatusInternalServerError)
				fmt.Fprint(w, `{"error":50001,"message":"it failed"}`)
			default:
				forward.ServeHTTP(w, r)
			}
		})
	})
	p := newPage(t)
	p.goTo(address + "/")
	p.enter(s.Token)
	p.wantIDs(ids(1, 20)...)
	const bar = "The service cannot be reached. Reconnecting… The list shows the plants that were loaded before."
	for _, action := range []struct {
		name string
		act  func()
		want []string
	}{
		{"refresh", func() { p.click("#refresh") }, ids(1, 20)},
		{"next page", func() { p.click("#next") }, ids(21, 25)},
		{"search", func() { p.typeIn("#search-text", "plant 17") }, ids(17, 17)},
	} {
		t.Logf("%s while the service cannot be reached", action.name)
		before := p.ids()
		state.Store(lost)
		action.act()
		p.wantText("#away", bar)
		p.wantIDs(before...)
		state.Store(up)
		p.wantIDs(action.want...)
		p.wantGone("#away")
	}
	state.Store(lost)
	p.add("26", "Fern", "")
	p.wantVisible("#add-error .explain", "The plant may have been stored. Creating the same plant again is safe.")
	state.Store(up)
	p.click("#add button")
	p.wantVisible("#status span", "Plant 26 is in the store.")
	p.wantGone("#add-error .failure")
	s.want(t, "26", 200, `{"id":26,"name":"Fern"}`)

	state.Store(broken)
	p.click("#refresh")
	p.wantVisible("#list-error bdi", "The service failed. If it happens again, tell the operator.")
	p.wantIDs("17")
	p.click(row("17") + " .edit") // What is edited by now is not replaced.
	p.typeIn(row("17")+" .f-name textarea", "not saved")
	state.Store(up)
	p.wantVisible("#refresh", "Refresh: list changed")
	p.wantGone("#list-error .failure")
	p.wantValue(row("17")+" .f-name textarea", "not saved")
	p.click(row("17")+" button", "Cancel")
	p.wantEmptyConsole()
}

// In a row of several lines, the checkbox is beside the id, as the buttons are.
func TestTallRow(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"a\nb\nc\nd"}`)
	p := openConsole(t, s)
	p.wantVisible(row("1"))
	middles := eval[[]float64](p, `['input', '.disclose', '.edit', '.remove'].map((part) => {
		const { top, bottom } = document.querySelector('tr.plant ' + part).getBoundingClientRect();
		return (top + bottom) / 2;
	})`)
	for _, y := range middles {
		if y < middles[1]-2 || y > middles[1]+2 {
			t.Errorf("the checkbox, the id and the buttons are at %v, want them beside each other", middles)
		}
	}
}
