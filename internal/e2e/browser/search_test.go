package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	cdptarget "github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// ids returns the ids of the rows on display.
func (p *page) ids() []string {
	p.t.Helper()
	return eval[[]string](p, `[...document.querySelectorAll('tr.plant')].map((row) => row.dataset.id)`)
}

// wantIDs waits until the page shows exactly these plants, in this order.
func (p *page) wantIDs(ids ...string) {
	p.t.Helper()
	waitFor(p.t, limit/2, fmt.Sprintf("the plants %q", ids), func() (bool, string) {
		found := p.ids()
		return slices.Equal(found, ids), fmt.Sprint(found)
	})
}

func TestSearch(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":-7,"name":"Monstera","tag":"climber"}`, `{"id":3,"name":"Ficus","tag":"MONUMENT"}`,
		`{"id":42,"name":"Aloe","tag":"succulent"}`, `{"id":100,"name":"No. 42"}`)
	p := openConsole(t, s)
	p.wantIDs("-7", "3", "42", "100")
	p.wantText("#list-order", "Sorted by id")
	p.wantVisible("th[aria-sort=ascending]", "Id")

	p.click("#search-text")
	p.press("mon") // It searches without Enter, in names and tags, ignoring case.
	p.wantIDs("-7", "3")
	p.typeIn("#search-text", "42") // An id comes first.
	p.wantIDs("42", "100")
	p.wantText("#list-order", "Plant 42 first, then sorted by id")
	p.typeIn("#search-text", "-7")
	p.wantIDs("-7")
	p.typeIn("#search-text", "99999999999999999999") // not an int64
	p.wantText("#empty p", "No plant matches 99999999999999999999.")
	eval[any](p, `((field) => {
		field.value = 'x'.repeat(100_000);
		field.form.requestSubmit();
	})(document.querySelector('#search-text'))`)
	p.wantVisible("#list-error bdi", "The search is too long. Shorten it to 1000 characters.")
	p.typeIn("#search-text", "nothing like it")
	p.wantText("#empty p", "No plant matches nothing like it.")
	p.click("#empty button", "Show all plants")
	p.wantIDs("-7", "3", "42", "100")
	p.wantValue("#search-text", "")
	p.do(chromedp.NavigateBack())
	p.wantText("#empty p", "No plant matches nothing like it.")
	p.wantValue("#search-text", "nothing like it")
	p.wantEmptyConsole()
}

// A response to an earlier search never replaces that of a later one, and the earlier request is cancelled.
func TestLateSearch(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`, `{"id":2,"name":"Ficus"}`)
	release, cancelled := make(chan struct{}), make(chan struct{})
	var once sync.Once
	address := s.proxy(t, func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("q") == "aloe" {
				select {
				case <-r.Context().Done():
					once.Do(func() { close(cancelled) })
					return
				case <-release:
				}
			}
			forward.ServeHTTP(w, r)
		})
	})
	p := newPage(t)
	p.goTo(address + "/")
	p.enter(s.Token)
	p.wantIDs("1", "2")
	p.typeIn("#search-text", "aloe")
	p.waitFor("the first search", `location.hash === '#q=aloe'`, `location.hash`)
	p.typeIn("#search-text", "ficus")
	p.wantIDs("2")
	<-cancelled
	close(release)
	p.click("#refresh") // It waits for a later response.
	p.wantGone("#table[aria-busy]")
	p.wantIDs("2")
}

// A search follows short and empty pages, up to a number of requests, and then offers to go on.
func TestSearchFurther(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe one"}`, `{"id":50,"name":"Ficus"}`, `{"id":60,"name":"Aloe two"}`)
	// A real search ends a page after 10,000 plants. The proxy ends it after every 10 ids.
	address := s.proxy(t, func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			after := 0
			fmt.Sscan(r.URL.Query().Get("after"), &after)
			if r.URL.Query().Get("q") == "aloe" && after < 60 {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Link",
					fmt.Sprintf(`<https://public.example/plants?after=%d&limit=20&q=aloe>; rel="next"`, after+10))
				switch after {
				case 0:
					fmt.Fprint(w, `[{"id":1,"name":"Aloe one"}]`)
				case 50:
					fmt.Fprint(w, `[{"id":60,"name":"Aloe two"}]`)
				default:
					fmt.Fprint(w, `[]`)
				}
				return
			}
			forward.ServeHTTP(w, r)
		})
	})
	p := newPage(t)
	p.goTo(address + "/")
	p.enter(s.Token)
	p.typeIn("#search-text", "aloe")
	p.wantVisible("#further", "Continue searching")
	p.wantText(".rest p", "More plants may match. Searched up to id 40.")
	p.wantIDs("1")
	p.click("#further")
	p.wantIDs("1", "60")
	p.wantGone("#further")
	p.wantEmptyConsole()
}

// A reload keeps the search, the page and the rows of a page; the browser's Back returns to the page before.
func TestReload(t *testing.T) {
	s := serve(t)
	for id := range 45 {
		s.create(t, fmt.Sprintf(`{"id":%d,"name":"Plant %d"}`, id, id))
	}
	p := openConsole(t, s)
	p.waitFor("rows", `document.querySelectorAll('tr.plant').length === 20`, `document.body?.innerText`)
	p.click("#next")
	p.wantText("#position", "Page 2 · ids 20 to 39")
	p.do(chromedp.Reload())
	p.wantText("#position", "Page 2 · ids 20 to 39")
	p.click("#previous")
	p.wantText("#position", "Page 1 · ids 0 to 19")
	p.do(chromedp.NavigateBack())
	p.wantText("#position", "Page 2 · ids 20 to 39")
	eval[any](p, `document.querySelector('#limit').value = '10';
		document.querySelector('#limit').dispatchEvent(new Event('change')); null`)
	p.wantText("#position", "Page 1 · ids 0 to 9")
	p.typeIn("#search-text", "plant 4")
	p.wantIDs("4", "40", "41", "42", "43", "44")
	p.do(chromedp.Reload())
	p.wantIDs("4", "40", "41", "42", "43", "44")
	p.wantValue("#search-text", "plant 4")
	p.wantValue("#limit", "10")
	if address := eval[string](p, `location.href`); strings.Contains(address, s.Token) {
		t.Errorf("the address has the token: %s", address)
	}
	p.wantEmptyConsole()
}

// A row opens to its JSON, which can be copied, also as a command that works in a shell.
func TestCopy(t *testing.T) {
	const id = "-9223372036854775807"
	const body = `{"id":-9223372036854775807,"name":"It's \"quoted\" ` + "`x`" + ` $HOME \\ and\nlong","tag":"a'b"}`
	s := serve(t)
	s.create(t, body)
	p := openConsole(t, s)
	info := call(p, cdptarget.GetTargetInfo, cdptarget.GetTargetInfoParams{})
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		call(p, cdpbrowser.SetPermission, cdpbrowser.SetPermissionParams{
			Permission: &cdpbrowser.PermissionDescriptor{Name: name}, Setting: cdpbrowser.PermissionSettingGranted,
			BrowserContextID: info.TargetInfo.BrowserContextID,
		})
	}
	p.click(row(id) + " .disclose")
	p.wantText(".json pre", "{\n  \"id\": "+id+",\n"+
		"  \"name\": \"It's \\\"quoted\\\" `x` $HOME \\\\ and\\nlong\",\n  \"tag\": \"a'b\"\n}")
	copied := func(button, said string) string {
		t.Helper()
		p.click(button)
		p.wantText("#status span", said)
		return eval[string](p, `navigator.clipboard.readText()`)
	}
	if got := copied(".copy-id", "The id is copied."); got != id {
		t.Errorf("the copied id is %q, want %q", got, id)
	}
	if got := copied(".copy-json", "The JSON is copied."); got != body {
		t.Errorf("the copied JSON is %s, want %s", got, body)
	}
	command := copied(".copy-curl", "The command is copied.")
	if strings.Contains(command, s.Token) {
		t.Errorf("the command has the token: %s", command)
	}
	p.click(row(id) + " .remove")
	p.wantGone(row(id))
	shell := exec.CommandContext(t.Context(), "sh", "-c", command)
	shell.Env = []string{"PATH=/usr/bin:/bin:/usr/local/bin", "PLANTSTORE_TOKEN=" + s.Token}
	if out, err := shell.Output(); err != nil {
		t.Errorf("%s: %v: %s", command, err, out)
	}
	s.want(t, id, 200, body)
	p.wantEmptyConsole()
}

// Several plants can be selected, with Shift for a range, and removed. Undo brings them back as they were.
func TestRemoveSeveral(t *testing.T) {
	s := serve(t)
	for id := 1; id <= 9; id++ {
		s.create(t, fmt.Sprintf(`{"id":%d,"name":"Plant %d","tag":""}`, id, id))
	}
	p := openConsole(t, s)
	p.click(row("2") + " input")
	p.clickWith(chromedp.ModifierShift, row("5")+" input")
	p.click(row("4") + " input")
	p.click(row("9") + " input")
	p.wantText("#selected", "4 plants selected")
	// Plant 9 changes behind the page, so it is not the plant that the user meant.
	if a := s.Do(t, "PUT", "/plants/9", `{"name":"changed"}`, "Content-Type: application/json"); a.Status != 200 {
		t.Fatal(a)
	}
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
	s.want(t, "2", 200, `{"id":2,"name":"Plant 2","tag":""}`)
	s.want(t, "3", 200, `{"id":3,"name":"another"}`)
	s.want(t, "5", 200, `{"id":5,"name":"Plant 5","tag":""}`)
	p.click("#list-error button", "Close")
	p.click("#refresh")
	p.wantIDs("1", "2", "3", "4", "5", "6", "7", "8", "9")

	p.click("#select-all")
	p.wantText("#selected", "9 plants selected")
	p.click("#remove-selected")
	p.wantText("#status span", "9 plants are removed.")
	p.wantVisible("#samples")
	p.click("#status button", "Undo")
	p.wantIDs("1", "2", "3", "4", "5", "6", "7", "8", "9")
	p.wantEmptyConsole()
}

// A plant whose removal succeeded without a response is removed, and undo brings it back.
func TestRemoveWithoutResponse(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`, `{"id":2,"name":"Fern"}`)
	var once sync.Once
	address := s.proxy(t, func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "DELETE" {
				once.Do(func() {
					forward.ServeHTTP(httptest.NewRecorder(), r)
					panic(http.ErrAbortHandler)
				})
			}
			forward.ServeHTTP(w, r)
		})
	})
	p := newPage(t)
	p.goTo(address + "/")
	p.enter(s.Token)
	p.click(row("1") + " .remove")
	p.wantText("#status span", "Plant 1 is removed.")
	p.wantIDs("2")
	s.want(t, "1", 404, "")
	p.click("#status button", "Undo")
	p.wantIDs("1", "2")
	s.want(t, "1", 200, `{"id":1,"name":"Aloe"}`)
	p.wantEmptyConsole()
}

// Undo restores all plants that were removed one after the other, and another notice does not replace it.
func TestUndoSeveral(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`, `{"id":2,"name":"Fern","tag":"green"}`, `{"id":3,"name":"Ficus"}`,
		`{"id":4,"name":"Pilea"}`)
	p := openConsole(t, s)
	p.click(row("1") + " .remove")
	p.wantVisible("#status span", "Plant 1 is removed.")
	// The next row moves under the pointer of a user who clicks twice.
	p.click(row("2") + " .remove")
	p.wantVisible("#status span", "2 plants are removed.")
	p.click(row("4") + " .disclose")
	p.click(".copy-id")
	p.wantVisible("#status div:nth-child(2) span") // Whether it can copy depends on the browser.
	p.add("5", "Olea", "")
	p.wantVisible("#status span", "Plant 5 is in the store.")
	p.click(row("3") + " .remove")
	p.wantVisible("#status span", "3 plants are removed.")
	p.wantIDs("4", "5")
	p.click("#status button", "Undo")
	p.wantIDs("1", "2", "3", "4", "5")
	p.wantGone("#status button")
	s.want(t, "1", 200, `{"id":1,"name":"Aloe"}`)
	s.want(t, "2", 200, `{"id":2,"name":"Fern","tag":"green"}`)
	s.want(t, "3", 200, `{"id":3,"name":"Ficus"}`)

	p.click(row("1") + " .remove") // What is restored is not counted again.
	p.wantVisible("#status span", "Plant 1 is removed.")
	p.click("#sign-out")
	p.wantGone("#status span") // Another token must not restore it.
	p.wantEmptyConsole()
}

// A restored plant is where it was: in a search, and at both ends of a page.
func TestUndoShowsPlant(t *testing.T) {
	s := serve(t)
	for id := range 30 {
		s.create(t, fmt.Sprintf(`{"id":%d,"name":"Plant %d"}`, id, id))
	}
	p := openConsole(t, s)
	p.goTo(s.URL + "/#rows=10&after=9")
	p.do(chromedp.Reload())
	page := []string{"10", "11", "12", "13", "14", "15", "16", "17", "18", "19"}
	p.wantIDs(page...)
	for _, id := range []string{"10", "19"} {
		p.click(row(id) + " .remove")
		p.wantGone(row(id))
		p.click("#status button", "Undo")
		p.wantIDs(page...)
	}
	p.typeIn("#search-text", "plant 2")
	found := []string{"2", "20", "21", "22", "23", "24", "25", "26", "27", "28"}
	p.wantIDs(found...)
	p.click(row("22") + " .remove")
	p.wantGone(row("22"))
	p.click("#status button", "Undo")
	p.wantIDs(found...)

	p.click(row("22") + " .remove")
	p.wantGone(row("22"))
	p.typeIn("#search-text", "plant 1")
	p.wantVisible(row("10"))
	p.click("#status button", "Undo")
	p.click("#status button", "Show it")
	p.wantIDs("22")
	p.wantEmptyConsole()
}

// Leaving an edit that is not saved asks first: for another page of the list, a search, and another site.
func TestUnsavedEdit(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`)
	p := openConsole(t, s)
	p.click(row("1") + " .edit")
	p.typeIn(row("1")+" .f-name textarea", "not saved")
	leave := func(act func()) {
		t.Helper()
		act()
		p.wantVisible("dialog p", "Your changes to plant 1 are not saved.")
		p.click("dialog button", "Keep editing")
		p.wantGone("dialog")
		p.wantValue(row("1")+" .f-name textarea", "not saved")
	}
	leave(func() { p.click("#refresh") })
	leave(func() { p.click("#sign-out") })
	leave(func() { p.typeIn("#search-text", "x") })
	p.wantValue("#search-text", "")
	p.click("#header nav a", "API reference") // The browser asks, and the test stays.
	waitFor(t, limit/2, "the question of the browser", func() (bool, string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		asked := slices.Equal(p.dialogs, []string{"beforeunload"})
		if asked {
			p.dialogs = nil
		}
		return asked, fmt.Sprint(p.dialogs)
	})
	p.wantValue(row("1")+" .f-name textarea", "not saved")

	// An import does not close the editor.
	p.drop("plants.ndjson", `{"id":2,"name":"Fern"}`)
	p.wantVisible("#import-close")
	p.wantValue(row("1")+" .f-name textarea", "not saved")
	p.click("#refresh")
	p.click("dialog button", "Discard them")
	p.wantIDs("1", "2")
	p.wantRow("1", "Aloe", "")
	p.wantEmptyConsole()
}
