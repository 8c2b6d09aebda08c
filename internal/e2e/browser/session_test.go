package browser

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"plantstore/internal/testkit"
)

func TestSignIn(t *testing.T) {
	s := serve(t)
	p := newPage(t)
	p.goTo(s.URL + "/")

	wrong := mistyped(s.Token)
	p.press(wrong) // The field has the focus.
	p.click("#sign-in button")
	p.wantVisible("#sign-in-error bdi", "This is not a whole token. Copy it again, from the first letter to the last.")
	p.wantVisible("#sign-in-error .detail", "Status 401 · error 40103")

	p.typeIn("#token", s.Token+enter)
	p.wantVisible("#store")
	p.wantText("#count", "0")
	if got := eval[map[string]string](p, `({ ...sessionStorage })`); len(got) != 1 || got["plantstore.token"] != s.Token {
		t.Errorf("sessionStorage holds %q, want the token alone", got)
	}
	for place, content := range map[string]string{
		"the address":  eval[string](p, `location.href`),
		"localStorage": eval[string](p, `JSON.stringify({ ...localStorage })`),
		"the cookies":  eval[string](p, `document.cookie`),
		"the page":     eval[string](p, `document.documentElement.outerHTML`),
	} {
		if strings.Contains(content, s.Token) {
			t.Errorf("%s has the token: %s", place, content)
		}
	}
	p.do(chromedp.Reload())
	p.wantVisible("#store") // The tab is still signed in.
	p.click("#sign-out")
	p.wantVisible("#sign-in")
	p.wantFocus("#token")
	if n := eval[int](p, `sessionStorage.length`); n != 0 {
		t.Errorf("sessionStorage has %d items after the sign-out", n)
	}
	p.wantEmptyConsole()
	p.wantOneOrigin(s.URL)
}

// What waits to be sent at a sign-out, and what could be undone, does not reach the store that is opened next.
func TestOtherStore(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`, `{"id":2,"name":"Fern"}`)
	other := testkit.IssueToken(t, s.db, "--name", "other", "--store", "other")
	var creates atomic.Int32
	address := s.proxy(t, func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" {
				creates.Add(1)
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
	p.wantIDs("2")
	p.click(row("2") + " .remove")
	p.wantVisible("#status button", "Undo")
	p.add("3", "Pilea", "")
	p.wantVisible("#waiting")
	p.click("#sign-out")
	p.enter(other)
	p.wantText("#session-store", "other")
	p.wantText("#count", "0")
	p.wantGone("#status button")
	if hash := eval[string](p, `location.hash`); hash != "" {
		t.Errorf("the other store opens at %s", hash)
	}
	before := creates.Load()
	time.Sleep(7 * time.Second) // longer than the create would wait
	if now := creates.Load(); now != before {
		t.Errorf("%d creates were sent to the other store", now-before)
	}
}

// What is typed when a token is revoked is there again for the next token of the same store, but not after a sign-out.
func TestDraft(t *testing.T) {
	s := serve(t)
	p := newPage(t)
	p.goTo(s.URL + "/")
	for i, tt := range []struct {
		store string // of the next token
		want  []string
	}{{"main", []string{"900", "My long draft", "tag"}}, {"other", []string{"", "", ""}}} {
		name := fmt.Sprintf("short-%d", i)
		p.enter(testkit.IssueToken(t, s.db, "--name", name))
		p.typeIn("#add-id", "900")
		p.typeIn("#add-name", "My long draft")
		p.typeIn("#add-tag", "tag")
		if _, errs, code := testkit.Run(t, nil, "token", "revoke", "--db", s.db, name); code != 0 {
			t.Fatal(errs)
		}
		p.wantVisible("#sign-in-error bdi", "This token was revoked. Ask the operator for a new one.")
		p.enter(testkit.IssueToken(t, s.db, "--name", "next-"+tt.store, "--store", tt.store))
		p.wantText("#session-store", tt.store)
		for j, field := range []string{"#add-id", "#add-name", "#add-tag"} {
			p.wantValue(field, tt.want[j])
		}
		p.click("#sign-out")
		p.wantVisible("#sign-in")
		if n := eval[int](p, `sessionStorage.length`); n != 0 {
			t.Errorf("sessionStorage has %d items after the sign-out", n)
		}
	}
}

// Signing out in a tab with a token of its own keeps the token of the device.
func TestTokenOfDevice(t *testing.T) {
	s := serve(t)
	other := testkit.IssueToken(t, s.db, "--name", "other", "--store", "other")
	p := newPage(t)
	p.goTo(s.URL + "/")
	p.enter(other)
	tab := p.newTab()
	tab.goTo(s.URL + "/")
	tab.wantVisible("#token")
	tab.click("#keep")
	tab.enter(s.Token)
	p.click("#sign-out")
	p.wantVisible("#token")
	tab.do(chromedp.Reload())
	tab.wantText("#session-store", "main")
}

// Both pages work below a path.
func TestPrefix(t *testing.T) {
	address := testkit.FreeAddress(t)
	s := serve(t, "--listen", address, "--base-url", "http://"+address+"/garden")
	p := newPage(t)
	p.goTo("http://" + address + "/garden/")
	p.enter(s.Token)
	p.click("button", "Add ten sample plants")
	p.wantText("#count", "10")
	p.click("#header nav a", "API reference")
	p.waitFor("the reference", `location.pathname === '/garden/docs'`, `location.href`)
	p.wantText("#session-token", "first")
}

// The header names the store and the token, and is the same on both pages. The token of a tab is not known to another
// tab.
func TestHeader(t *testing.T) {
	s := serve(t)
	token := testkit.IssueToken(t, s.db, "--name", "guest.of_Ann", "--store", "annex", "--scopes", "plants:read",
		"--rate", "10/m", "--burst", "20", "--expires", "90d")
	p := newPage(t)
	p.goTo(s.URL + "/")
	p.enter(token)
	const header = `document.querySelector('#header').innerText`
	wantHeader := func() {
		t.Helper()
		p.wantText("#session-store", "annex")
		p.wantText("#session-token", "guest.of_Ann")
		p.waitFor("what the token allows", `/^read · 10 requests a minute · expires [A-Z][a-z]+ \d+, 20\d\d/.test(
			document.querySelector('#session-facts')?.textContent)`, header)
	}
	wantHeader()
	before := eval[string](p, header)
	p.click("#header nav a", "API reference")
	p.waitFor("the reference", `location.pathname === '/docs'`, `location.href`)
	wantHeader()
	if now := eval[string](p, header); now != before {
		t.Errorf("the header of /docs is %q, want %q as on the console", now, before)
	}
	tab := p.newTab()
	tab.goTo(s.URL + "/")
	tab.wantVisible("#token")
	p.click("#sign-out")
	p.wantVisible("#token")
	p.typeIn("#token", s.Token+enter)
	p.wantText("#session-store", "main")
	p.click("#header nav a", "Plants")
	p.wantVisible("#store")
	p.wantText("#session-store", "main")
}

// A token that is kept on the device is open in a new tab and on /docs. Signing out in one tab signs out in all.
func TestKeepToken(t *testing.T) {
	s := serve(t)
	p := newPage(t)
	p.goTo(s.URL + "/")
	p.click("#keep")
	p.enter(s.Token)
	for _, path := range []string{"/docs", "/"} {
		tab := p.newTab()
		tab.goTo(s.URL + path)
		tab.wantText("#session-token", "first")
		if path == "/" {
			tab.wantVisible("#store")
			p.click("#sign-out")
			tab.wantVisible("#sign-in")
			tab.wantGone("#store")
		}
	}
	if local := eval[string](p, `JSON.stringify({ ...localStorage })`); strings.Contains(local, s.Token) {
		t.Errorf("localStorage has the token after the sign-out: %s", local)
	}
	p.wantEmptyConsole()
}

// The page shows only what the token allows, and says why.
func TestScopes(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`)
	const list, search, chart, form, imports, edit, pick = "#table", "#search-text", "#chart", "#add", "#import", ".edit",
		".c-pick"
	for _, tt := range []struct {
		scopes        string
		shown, hidden []string
		sentence      string
	}{
		{"plants:create,plants:read", []string{list, search, chart, form, imports}, []string{edit, pick},
			"This token does not have the scope plants:write, so editing and removing are not shown."},
		{"plants:read,plants:write", []string{list, search, chart, edit, pick}, []string{form, imports},
			"This token does not have the scope plants:create, so the form to add plants and the import are not shown."},
		{"plants:create", []string{form, imports}, []string{list, search, chart, edit},
			"This token does not have the scope plants:read, so the list, the search and the chart are not shown."},
	} {
		t.Run(tt.scopes, func(t *testing.T) {
			p := newPage(t)
			p.goTo(s.URL + "/")
			name := strings.NewReplacer(":", ".", ",", "_").Replace(tt.scopes)
			p.enter(testkit.IssueToken(t, s.db, "--name", name, "--scopes", tt.scopes))
			for _, selector := range tt.shown {
				p.wantVisible(selector)
			}
			for _, selector := range tt.hidden {
				p.wantGone(selector)
			}
			p.waitFor("the reason", `document.querySelector('#limits')?.innerText.includes(`+js(tt.sentence)+`)`,
				`document.querySelector('#limits')?.innerText`)
			switch tt.scopes {
			case "plants:read,plants:write": // Undo would create plants, so removing asks first.
				p.click(row("1") + " .remove")
				p.click("dialog button", "Keep")
				p.wantRow("1", "Aloe", "")
				p.click(row("1") + " .remove")
				p.click("dialog button", "Remove")
				p.wantText("#status", "Plant 1 is removed.")
				s.want(t, "1", 404, "")
			case "plants:create":
				p.add("7", "Fern", "")
				p.wantText("#status", "Plant 7 is in the store.")
				s.want(t, "7", 200, `{"id":7,"name":"Fern"}`)
			}
			p.wantEmptyConsole()
		})
	}
}
