package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"

	"plantstore/test/testkit"
)

// scalarMessage is the start of what Scalar, which renders the API reference, writes to the browser's console.
const scalarMessage = "info: @scalar/api-reference@"

// scalarClient is the dialog of Scalar that sends requests.
const scalarClient = `[role=dialog][aria-label="API Client"] `

// openClient opens the dialog of Scalar for an operation. Its button may move away at any time, while the page loads.
func (p *page) openClient(operation string) {
	p.t.Helper()
	start, last := time.Now(), ""
	for eval[bool](p, "!"+find(scalarClient)) {
		now := eval[string](p, place("button", "Test Request("+operation+")"))
		if now != "" && now == last {
			p.clickAt(now)
		}
		last = now
		if time.Since(start) > limit {
			p.t.Fatalf("waited %v for the client of %s", limit, operation)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// The console and the API reference work below a path. They share the session and its header, which names the store and
// what the token allows. The requests of the reference go to this service with the token of the header.
func TestReference(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	address := testkit.FreeAddress(t)
	s := serve(t, "--listen", address, "--base-url", "http://"+address+"/garden")
	guest := s.issue(t, "--name", "guest.of_Ann", "--store", "annex", "--scopes", "plants:read", "--rate", "10/m",
		"--burst", "20", "--expires", "90d")
	p := newPage(t, s.front)
	p.accepts = scalarMessage
	p.open(guest)
	wantHeader := func() {
		t.Helper()
		p.wantText("#session-store", "annex")
		p.wantText("#session-token", "guest.of_Ann")
		p.waitFor("what the token allows", `/^read · 10 requests a minute · expires [A-Z][a-z]+ \d+, 20\d\d/.test(
			document.querySelector('#session-facts')?.textContent)`, `document.querySelector('#header').innerText`)
	}
	wantHeader()
	p.click("#header nav a", "API reference")
	p.waitFor("the reference", `location.pathname === '/garden/docs'`, `location.href`)
	wantHeader()
	p.signOut()
	p.typeIn("#token", s.Token+enter)
	p.wantText("#session-store", "main")

	p.wantVisible("h1", "Plant Store")
	if shown := eval[string](p, `document.body?.innerText`); strings.Contains(shown, "9223372036854776") {
		t.Error("the page shows limits of an int64 that JavaScript has rounded")
	}
	p.waitFor("the download of the description itself",
		`document.querySelector('.download-link')?.href === `+js(s.URL+"/openapi.json"))
	p.goTo("/docs#tag/plants/POST/plants")
	p.openClient("post /plants")
	// The editor closes brackets as they are typed, so the body is pasted.
	const body = `{"id":` + most + `,"name":"Tried <b>here</b>","tag":"docs"}`
	p.typeIn(scalarClient+"[role=textbox]", backspace)
	call(p, input.InsertText, input.InsertTextParams{Text: body})
	p.wantVisible(scalarClient+"[role=textbox]", body)
	p.click(scalarClient+"button", "SendSend post request to "+s.URL+"/plants")
	p.wantVisible(scalarClient+"*", "200 OK")
	s.want(t, body)
	cookies, local := eval[string](p, `document.cookie`), eval[string](p, `JSON.stringify({ ...localStorage })`)
	if cookies != "" || strings.Contains(local, s.Token) {
		t.Errorf("the page keeps the cookies %q and %s", cookies, local)
	}
	p.goTo("/")
	p.wantIDs(most)
	p.remove(most)
	p.click("button", "Add ten sample plants")
	p.wantIDs(ids(1, 10)...)
}
