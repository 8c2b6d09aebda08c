package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"plantstore/test/testkit"
)

// mistyped changes the last letter of a token, which is part of its checksum.
func mistyped(token string) string {
	last := "a"
	if strings.HasSuffix(token, last) {
		last = "b"
	}
	return token[:len(token)-1] + last
}

// A token opens its store. It is kept for the tab alone and is nowhere else.
func TestSignIn(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := newPage(t, s.front)
	p.goTo("/")
	p.press(mistyped(s.Token)) // The field has the focus.
	p.click("#sign-in button")
	p.wantVisible("#sign-in-error bdi", "This is not a whole token. Copy it again, from the first letter to the last.")
	p.wantVisible("#sign-in-error .detail", "Status 401 · error 40103")

	p.enter(s.Token)
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
	p.signOut()
	p.wantFocus("#token")
}

func (p *page) signOut() {
	p.t.Helper()
	p.click("#sign-out")
	p.wantVisible("#sign-in")
	if n := eval[int](p, `sessionStorage.length`); n != 0 {
		p.t.Errorf("sessionStorage has %d items after the sign-out", n)
	}
}

// The page shows only what the token allows, and says why.
func TestScopes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`)
	const list, search, edit, pick = "#table", "#search-text", ".edit", ".c-pick"
	const add, form, imports = "#add-open", "#add", "#import"
	p := newPage(t, s.front)
	p.goTo("/")
	for _, tt := range []struct {
		scopes        string
		shown, hidden []string
		sentence      string
		act           func()
	}{
		{"plants:create,plants:read", []string{list, search, add, imports}, []string{edit, pick},
			"plants:write, so editing and removing are not shown.", func() {}},
		{"plants:read,plants:write", []string{list, search, edit, pick}, []string{add, form, imports},
			"plants:create, so adding plants and the import are not shown.", func() {
				p.remove("1") // Undo would create plants, so removing asks first.
				p.click("dialog button", "Keep")
				p.wantRow("1", "Aloe", "")
				p.remove("1")
				p.click("dialog button", "Remove")
				p.wantText("#status", "Plant 1 is removed.")
				s.wantNone(t, "1")
			}},
		{"plants:create", []string{form, imports}, []string{list, search, edit}, "plants:read, so the list", func() {
			p.add("7", "Fern", "")
			p.wantText("#status", "Plant 7 is in the store.")
			s.want(t, `{"id":7,"name":"Fern"}`)
		}},
	} {
		name := strings.NewReplacer(":", ".", ",", "_").Replace(tt.scopes)
		p.enter(s.issue(t, "--name", name, "--scopes", tt.scopes))
		p.wantText("#session-token", name)
		for _, selector := range tt.shown {
			p.wantVisible(selector)
		}
		for _, selector := range tt.hidden {
			p.wantGone(selector)
		}
		p.waitFor("the reason", `document.querySelector('#limits')?.innerText.includes(`+
			js("This token does not have the scope "+tt.sentence)+`)`, `document.querySelector('#limits')?.innerText`)
		tt.act()
		p.signOut()
	}
}

// A token of a tab is not known to another tab. A token that is kept on the device is open in every new tab, until one
// signs out with it.
func TestKeepToken(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s := serve(t)
	p := newPage(t, s.front)
	p.open(s.issue(t, "--name", "other", "--store", "other"))
	keeper := p.newTab()
	keeper.goTo("/")
	keeper.wantVisible("#token")
	keeper.click("#keep")
	keeper.enter(s.Token)
	reference := p.newTab()
	reference.accepts = scalarMessage
	reference.goTo("/docs")
	reference.wantText("#session-token", "first")
	p.signOut() // with a token of its own
	p.do(chromedp.Reload())
	p.wantText("#session-store", "main")
	p.wantVisible("#store")
	keeper.click("#sign-out")
	for _, tab := range []*page{keeper, p} {
		tab.wantVisible("#sign-in")
		tab.wantGone("#store")
	}
	if local := eval[string](p, `JSON.stringify({ ...localStorage })`); strings.Contains(local, s.Token) {
		t.Errorf("localStorage has the token after the sign-out: %s", local)
	}
}
