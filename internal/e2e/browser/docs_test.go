package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
)

// The API reference renders without a network, and its requests go to this service with the token of the header.
func TestReference(t *testing.T) {
	s := serve(t)
	p := newPage(t)
	p.goTo(s.URL + "/docs#tag/plants/POST/plants")
	p.typeIn("#token", s.Token+enter)
	p.wantText("#session-token", "first")
	p.wantVisible("h1", "Plant Store")
	p.wantVisible("button", "Test Request(post /plants)")
	p.screenshot("docs")
	if shown := eval[string](p, `document.body?.innerText`); strings.Contains(shown, "9223372036854776") {
		t.Error("the page shows limits of an int64 that JavaScript has rounded")
	}
	address := eval[string](p, `document.querySelector('.download-link')?.href ?? ''`)
	if address != s.URL+"/openapi.json" {
		t.Errorf("the download is %q, want the description itself", address)
	}

	const client = `[role=dialog][aria-label="API Client"] `
	p.click("button", "Test Request(post /plants)")
	// The editor closes brackets as they are typed, so the body is pasted.
	const body = `{"id":9223372036854775807,"name":"Tried <b>here</b>","tag":"docs"}`
	p.typeIn(client+"[role=textbox]", backspace)
	call(p, input.InsertText, input.InsertTextParams{Text: body})
	p.wantVisible(client+"[role=textbox]", body)
	p.click(client+"button", "SendSend post request to "+s.URL+"/plants")
	p.wantVisible(client+"*", "200 OK")
	p.screenshot("docs-try-it")
	s.want(t, "9223372036854775807", 200, body)

	for _, m := range p.seen() {
		if !strings.HasPrefix(m, "info: @scalar/api-reference@") {
			t.Errorf("the page's console: %s", m)
		}
	}
	p.wantOneOrigin(s.URL, "/docs", "/docs/scalar.js", "/openapi.json")
	cookies, local := eval[string](p, `document.cookie`), eval[string](p, `JSON.stringify({ ...localStorage })`)
	if cookies != "" || strings.Contains(local, s.Token) {
		t.Errorf("the page keeps the cookies %q and %s", cookies, local)
	}
}
