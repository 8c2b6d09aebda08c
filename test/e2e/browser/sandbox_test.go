package browser

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"plantstore/test/testkit"
)

// openSandbox starts the product with sandboxes and creates one on the page to sign in.
func openSandbox(t *testing.T) (*service, *page) {
	t.Helper()
	t.Parallel()
	s := serve(t, "--sandbox")
	p := newPage(t, s.front)
	p.goTo("/")
	p.click("#new-sandbox")
	p.wantText("#count", "12")
	s.Token = eval[string](p, `sessionStorage.getItem('plantstore.token')`)
	return s, p
}

const anHour = "(60|5[0-9]) min"

// wantTimeLeft waits until the time left on the page matches a pattern: it depends on how long the test takes.
func (p *page) wantTimeLeft(pattern string) {
	p.t.Helper()
	const shown = `document.querySelector('#time-left')?.textContent`
	p.waitFor("the time left", fmt.Sprintf(`/^%s left$/.test(%s)`, pattern, shown), shown)
}

// One click opens a sandbox. Its requests appear while they happen, with what was sent, and faults can be switched on
// and off: the page shows what a client would see.
func TestSandbox(t *testing.T) {
	s, p := openSandbox(t)
	p.wantTimeLeft(anHour)
	p.click("#tab-requests")
	p.wantVisible("tr.entry") // those of the page
	p.click("#clear-requests")
	p.wantVisible("#no-requests")
	s.create(t, "{\"id\":100,\"name\":\"Fern \u202e\"}")
	p.wantVisible("tr.entry .r-request b", "POST")
	p.click("tr.entry .disclose")
	p.wantText(`.details pre[aria-label="Body"]`, `{"id":100,"name":"Fern U+202E"}`)
	p.waitFor("the headers", `document.querySelector('.details pre').textContent.includes('Authorization: Bearer …')`)

	p.press(tab)
	p.click("#tab-requests")
	p.do(arrowRight)
	p.wantFocus("#tab-faults")
	p.choose("#of-stored-503", "POST /plants")
	p.choose("#times-stored-503", "1")
	p.click("#fault-stored-503")
	p.wantText("#rules tbody tr", "createStore, then respond with 503onceRemove")
	p.click("#tab-plants")
	p.wantVisible("#faults-note")
	p.add("200", "Ivy", "")
	p.wantVisible("#add-error .detail")
	s.want(t, `{"id":200,"name":"Ivy"}`)
	p.click("#add button")
	p.wantVisible("#status span", "Plant 200 is in the store.")
	p.click("#tab-requests")
	p.wantVisible("tr.entry .r-fault span", "code=503; when=after")
	p.click("#tab-faults")
	p.wantText("#rules tbody tr", "createStore, then respond with 503used upRemove")
	p.wantGone("#fault-stored-503:checked")

	s.change(t, "PUT", "/faults", `[{"delay":1,"code":40401,"path":"/plants/{id}","times":3}]`) // as another client
	p.wantText("#rules tbody tr", "/plants/{id}Wait 1 ms, then respond with 404013 timesRemove")
	p.click("#fault-truncate")
	p.wantVisible("#rules .u-fault", "Cut off the response")
	p.click("#tab-plants")
	p.click("#refresh")
	p.wantVisible("#away")
	p.click("#faults-note button")
	p.click("#fault-truncate")
	p.wantText("#rules .u-fault", "Wait 1 ms, then respond with 40401")
	p.click("#rules .remove")
	p.wantVisible("#no-rules")
	p.click("#tab-plants")
	p.wantGone("#away") // It connects again by itself.

	p.click("#reset")
	p.click("dialog button", "Reset")
	p.wantText("#count", "12")
	s.wantNone(t, "100")
	p.accepts = scalarMessage
	p.goTo("/docs")
	p.wantTimeLeft(anHour)
}

// The end of a sandbox is announced, and the page to sign in offers another one. On the API reference one click opens
// a sandbox too. A server that refuses says why.
func TestSandboxEnds(t *testing.T) {
	s, p := openSandbox(t)
	eval[any](p, `{ const now = Date.now; Date.now = () => now() + 58.5 * 60_000; }`)
	p.wantTimeLeft("[1-9][0-9]? s")
	eval[any](p, `{ const now = Date.now; Date.now = () => now() + 2 * 60_000; }`)
	p.wantText("#time-left", "The sandbox has ended")
	s.change(t, "DELETE", "/sandbox", "")
	p.wantVisible("#sign-in-error bdi", "This sandbox has ended. Its plants and its token are removed.")
	p.click("#new-sandbox")
	p.wantText("#count", "12")
	p.click("#delete-sandbox")
	p.click("dialog button", "Remove")
	p.wantVisible("#status span", "The sandbox is removed.")

	p.accepts = scalarMessage
	p.goTo("/docs")
	p.click("#new-sandbox")
	p.wantTimeLeft(anHour)
}

// A page with the token of a sandbox says when different processes respond. A server that refuses a sandbox says why,
// and a server without sandboxes does not offer any.
func TestSandboxElsewhere(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s := serve(t, "--sandbox")
	var requests atomic.Int32
	s.intercept(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		if r.URL.Path == "/sandboxes" && requests.Add(1) == 1 {
			refuse(w)
			return
		}
		if r.URL.Path == "/faults" && requests.Add(1) > 3 {
			w = &otherProcess{w}
		}
		product.ServeHTTP(w, r)
	})
	p := newPage(t, s.front)
	p.goTo("/")
	p.click("#new-sandbox")
	p.waitFor("the reason", `document.querySelector('#sign-in-error .retry')?.textContent.startsWith('Try again in ')`)
	p.click("#new-sandbox")
	p.wantVisible("#several")
	p = newPage(t, serve(t).front)
	p.goTo("/")
	p.wantVisible("#token")
	p.wantGone("#new-sandbox")
}

// otherProcess names another process in the response.
type otherProcess struct{ http.ResponseWriter }

func (w *otherProcess) WriteHeader(status int) {
	w.Header().Set("Sandbox-Process", "other")
	w.ResponseWriter.WriteHeader(status)
}
