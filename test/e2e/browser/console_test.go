package browser

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"plantstore/test/testkit"
)

// open opens the console and signs in.
func (p *page) open(token string) {
	p.t.Helper()
	p.goTo("/")
	p.enter(token)
}

func (p *page) enter(token string) {
	p.t.Helper()
	p.typeIn("#token", token+enter)
	p.wantVisible("#store")
}

// row is the selector of a plant's row.
func row(id string) string { return fmt.Sprintf(`tr[data-id="%s"]`, id) }

// add opens the row for a new plant, unless it is open, fills it and sends it.
func (p *page) add(id, name, tag string) {
	p.t.Helper()
	if eval[bool](p, "!"+find("#add")) {
		p.click("#add-open")
	}
	p.typeIn("#add-id", id)
	p.typeIn("#add-name", name)
	if tag != "" {
		p.typeIn("#add-tag", tag)
	}
	p.click("#add button")
}

// edit opens a row and types a name.
func (p *page) edit(id, name string) {
	p.t.Helper()
	p.click(row(id) + " .edit")
	p.typeIn(row(id)+" .f-name textarea", name)
}

// save saves what is typed in a row.
func (p *page) save(id string) {
	p.t.Helper()
	p.click(row(id)+" button", "Save")
}

func (p *page) remove(id string) {
	p.t.Helper()
	p.click(row(id) + " .remove")
}

func (p *page) search(text string) {
	p.t.Helper()
	p.typeIn("#search-text", text)
}

// choose selects a value of a list.
func (p *page) choose(selector, value string) {
	p.t.Helper()
	eval[any](p, `((selector, value) => {
		const list = document.querySelector(selector);
		list.value = value;
		list.dispatchEvent(new Event('change'));
	})(`+js(selector, value)+`)`)
}

// wantRow waits until a plant is shown with this name and tag. An empty tag means no tag.
func (p *page) wantRow(id, name, tag string) {
	p.t.Helper()
	p.wantText(row(id)+" .c-id", id) // with a minus that can be pasted
	p.wantText(row(id)+" .c-name", name)
	if tag == "" {
		tag = "–no tag"
	}
	p.wantText(row(id)+" .c-tag", tag)
}

// wantIDs waits until the page shows exactly these plants, in this order.
func (p *page) wantIDs(ids ...string) {
	p.t.Helper()
	const shown = `[...document.querySelectorAll('tr.plant')].map((row) => row.dataset.id).join(' ')`
	p.waitFor(fmt.Sprintf("the plants %q", ids), shown+` === `+js(strings.Join(ids, " ")), shown)
}

// JavaScript's numbers cannot represent these ids.
const least, most = "-9223372036854775808", "9223372036854775807"

func TestPlants(t *testing.T) {
	s, p := openConsole(t)
	p.wantVisible("#empty p", "No plants yet. The first one you add appears here.")

	p.add(most, "Ficus lyrata", "tree")
	p.wantText("#status", "Plant "+most+" is in the store.")
	p.wantRow(most, "Ficus lyrata", "tree")
	p.wantText("#count", "1")
	s.want(t, `{"id":`+most+`,"name":"Ficus lyrata","tag":"tree"}`)

	p.add(most, "Monstera", "")
	p.wantVisible("#add-error bdi", "Another plant has this id.")
	p.wantVisible("#add-error .detail", "Status 400 · error 40009")
	p.wantVisible("#add-id[aria-invalid=true]:focus")
	p.wantValue("#add-name", "Monstera") // The input is kept.

	for _, wrong := range [][3]string{
		{"4.5", "Fern", "The id must be a whole number, such as 42 or -7."},
		{"9223372036854775808", "Fern", "The id is out of range. It must be between " + least + " and " + most + "."},
		{"2", strings.Repeat("x", 70_000), "The name and tag are too long for this service. Shorten them."},
	} {
		p.add(wrong[0], wrong[1], "")
		p.wantVisible("#add-error bdi", wrong[2])
	}
	p.typeIn("#add-name", backspace)
	p.click("#add button")
	p.wantText("#add-ask", "The name is empty. To add the plant without a name, press Add again.")
	s.wantNone(t, "2")
	p.click("#add button")
	p.wantRow("2", "empty", "")
	s.change(t, "DELETE", "/plants/2", "")

	p.edit(most, "Ficus elastica")
	p.typeIn(row(most)+" .f-tag textarea", backspace)
	p.save(most)
	p.wantRow(most, "Ficus elastica", "")
	s.want(t, `{"id":`+most+`,"name":"Ficus elastica"}`)

	p.add("-8", "Aloe", "")
	p.wantRow("-8", "Aloe", "")
	p.click("#refresh")
	p.wantIDs("-8", most)
	p.remove(most)
	p.wantText("#status span", "Plant "+most+" is removed.")
	p.wantIDs("-8")
	p.wantText("#count", "1")
	s.wantNone(t, most)
	p.click("#status button", "Undo")
	p.wantIDs("-8", most)
	s.want(t, `{"id":`+most+`,"name":"Ficus elastica"}`)
}

// A free id is suggested, also after a conflict, which links to the plant that has the id. A row that is closed keeps
// what is typed, and after a revocation the next token of the same store finds it there.
func TestSuggestedID(t *testing.T) {
	s, p := openConsole(t, append(numbered(30), `{"id":32,"name":"after a gap"}`)...)
	p.wantText("#count", "31")
	p.click("#add-open")
	p.wantValue("#add-id", "33") // 32 is on another page.
	p.add("2", "Fern", "")
	p.click("#add-error button", "Use 31 instead")
	p.wantValue("#add-id", "31")
	p.wantGone("#add-error .failure")
	p.add("2", "Fern", "")
	p.click("#add-error a", "Show plant 2")
	p.wantText("#list-order", "Plant 2 first, then sorted by id")
	p.wantText("#found", "12")
	p.wantValue("#add-name", "Fern")
	p.click("#add button", "Close")
	p.wantGone("#add")
	testkit.Run(t, nil, "token", "revoke", "first", "--db", s.db)
	testkit.WaitFor(t, "the end of the token", func() bool {
		a, err := s.Send("GET", "/token", "")
		return err == nil && a.Status == http.StatusUnauthorized
	})
	p.click("#refresh")
	p.wantVisible("#sign-in-error bdi", "This token was revoked. Ask the operator for a new one.")
	p.enter(s.issue(t, "--name", "second"))
	p.wantValue("#add-id", "2")
	p.wantValue("#add-name", "Fern")
	p.typeIn("#add-id", "31"+enter)
	p.wantVisible("#status span", "Plant 31 is in the store.")
	p.wantValue("#add-id", "33")
}

// Leaving an edit that is not saved asks first: for another page of the list, a search, and another site. A plant that
// another client has changed is neither replaced nor removed unseen.
func TestConflict(t *testing.T) {
	s, p := openConsole(t, `{"id":1,"name":"Aloe"}`)
	p.edit("1", "not saved")
	for _, leave := range []func(){
		func() { p.click("#refresh") }, func() { p.click("#sign-out") }, func() { p.search("x") },
	} {
		leave()
		p.wantVisible("dialog p", "Your changes to plant 1 are not saved.")
		p.click("dialog button", "Keep editing")
		p.wantGone("dialog")
		p.wantValue(row("1")+" .f-name textarea", "not saved")
	}
	p.click("#header nav a", "API reference") // The browser asks, and the test stays.
	testkit.WaitFor(t, "the question of the browser", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		asked := slices.Equal(p.dialogs, []string{"beforeunload"})
		if asked {
			p.dialogs = nil
		}
		return asked
	})
	p.wantValue(row("1")+" .f-name textarea", "not saved")
	p.click("#refresh")
	p.click("dialog button", "Discard them")
	p.wantRow("1", "Aloe", "")

	p.edit("1", "mine")
	s.change(t, "PUT", "/plants/1", `{"name":"theirs"}`)
	p.save("1")
	p.wantVisible(row("1")+" .detail", "Status 412 · error 41201")
	s.want(t, `{"id":1,"name":"theirs"}`)
	p.click("button", "Load the current version")
	p.wantValue(row("1")+" .f-name textarea", "theirs")
	p.typeIn(row("1")+" .f-name textarea", "mine, knowingly")
	p.save("1")
	p.wantRow("1", "mine, knowingly", "")

	s.change(t, "PUT", "/plants/1", `{"name":"theirs again"}`)
	p.remove("1")
	p.wantVisible("#list-error li", "Plant 1: Somebody changed it in the meantime. Check it before you remove it.")
	s.want(t, `{"id":1,"name":"theirs again"}`)
	p.wantRow("1", "theirs again", "")
	p.remove("1")
	p.wantGone(row("1"))
	s.wantNone(t, "1")
}

// A name is shown as text everywhere, whatever it contains. Characters without a shape of their own have visible marks;
// fields keep them as they are.
func TestNamesAreText(t *testing.T) {
	const attack = "javascript:window.pwned=1"
	names := []string{
		`<img src=x onerror=window.pwned=1>`,
		`<script>window.pwned=1</script>`,
		`"><svg onload=window.pwned=1>`,
		`<a href="` + attack + `">`,
		`&lt;b&gt; {{pwned}} ${pwned}`,
	}
	s, p := openConsole(t, `{"id":11,"name":"live \u202eoverridden","tag":"\u009b31m"}`,
		`{"id":12,"name":"\u2067\u0007","tag":"a\nb\tc"}`,
		`{"id":13,"name":"Fe\u200drn \udb40\udc01","tag":"می\u200cخواهم 👩\u200d🌾"}`)
	for i, name := range names {
		p.add(fmt.Sprint(i), name, attack)
		p.wantRow(fmt.Sprint(i), name, attack)
	}
	p.click("#refresh")
	p.wantGone("#table[aria-busy]") // Otherwise the new list could close what is opened below.
	for i, name := range names {
		id := fmt.Sprint(i)
		p.wantRow(id, name, attack)
		p.click(row(id) + " .disclose")
		p.wantVisible(".json pre")
		p.click(row(id) + " .disclose")
		p.click(row(id) + " .edit")
		p.wantValue(row(id)+" .f-name textarea", name)
		p.click(row(id)+" button", "Cancel")
		p.wantVisible(row(id) + " .edit:focus") // Keys that are typed earlier would go there.
	}
	p.wantRow("11", "live U+202Eoverridden", "U+009B31m")
	p.wantVisible(row("11")+" .c-name .mark", "U+202E")
	p.wantRow("12", "U+2067U+0007", "a\nb\tc")
	p.wantRow("13", "FeU+200Drn U+E0001", "می\u200cخواهم 👩\u200d🌾") // Scripts and emoji need joiners.
	p.click(row("11") + " .disclose")
	p.wantText(".json pre", "{\n  \"id\": 11,\n  \"name\": \"live \\u202eoverridden\",\n  \"tag\": \"\\u009b31m\"\n}")
	p.search(names[0] + "\u202e")
	p.wantText("#empty p", "No plant matches "+names[0]+"U+202E.")
	p.drop(names[0]+"\u202e", "id,name\n\"<b>\u009b\",<img src=x onerror=window.pwned=1>\n")
	p.wantText("#import-title bdi", names[0]+"U+202E")
	p.wantText(".bad-lines bdi", `The id must be a whole number, but is "<b>U+009B".`)
	p.click("#show-all")
	p.click(row("11") + " .edit")
	p.wantVisible(row("11")+" .f-name .note", "Stored: live U+202Eoverridden")
	p.wantValue(row("11")+" .f-name textarea", "live \u202eoverridden")
	if text := eval[string](p, `document.body.textContent`); strings.ContainsAny(text, "\u202e\u009b\u2067\a") {
		t.Errorf("the page has characters without a mark: %q", text)
	}
	p.typeIn(row("11")+" .f-tag textarea", "tree")
	p.save("11")
	p.wantRow("11", "live U+202Eoverridden", "tree")
	s.want(t, "{\"id\":11,\"name\":\"live \u202eoverridden\",\"tag\":\"tree\"}")
	const created = `document.querySelectorAll('#store :is(img, script, a, iframe), #store svg').length`
	if n := eval[int](p, created); n != 0 {
		t.Errorf("names became %d elements", n)
	}
	if eval[bool](p, `'pwned' in window`) {
		t.Error("a name ran as a script")
	}
	p.accepts = "error: This document requires 'TrustedHTML' assignment." // The security policy would prevent both.
	outcome := eval[string](p, `(() => {
		try { document.body.innerHTML = '<b>'; } catch (e) { return e.name; }
		return 'markup';
	})()`)
	if outcome != "TypeError" {
		t.Errorf("a text that a script writes as markup becomes %s, want a TypeError", outcome)
	}
}

// An action that must wait for the rate of the token says how long, and goes on by itself.
func TestWaitForRate(t *testing.T) {
	var refused atomic.Value // the method of the requests that are refused
	refused.Store("")
	s, p := openHurried(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		if r.Method == refused.Load() && strings.HasPrefix(r.URL.Path, "/plants") {
			refuse(w)
		} else {
			product.ServeHTTP(w, r)
		}
	}, `{"id":1,"name":"Aloe"}`, `{"id":2,"name":"Fern"}`)
	p.wantIDs("1", "2")
	const seconds = " Continuing in [1-5] s[.]"
	for _, tt := range []struct {
		method string
		act    func()
		place  string // of the message
		long   string // how long it waits, as the message says it
		then   func()
	}{
		{"GET", func() { p.search("fern") }, "#list-error", seconds, func() { p.wantIDs("2") }},
		{"POST", func() { p.add("3", "Pilea", "") }, "#waiting", seconds,
			func() { p.wantText("#status span", "Plant 3 is in the store.") }},
		{"PUT", func() { p.edit("2", "Tree fern"+enter) }, "#waiting", seconds,
			func() { p.wantRow("2", "Tree fern", "") }},
		{"DELETE", func() { p.remove("2") }, "#status", "",
			func() { p.wantText("#status span", "Plant 2 is removed.") }},
	} {
		refused.Store(tt.method)
		tt.act()
		text := `document.querySelector(` + js(tt.place) + `)?.textContent`
		p.waitFor("the reason to wait", `/This token has used up its requests for now[.]`+tt.long+`/.test(`+text+`)`, text)
		refused.Store("")
		tt.then()
		p.wantGone("#list-error .failure")
		p.wantGone("#waiting")
	}
	s.want(t, `{"id":3,"name":"Pilea"}`)
	s.wantNone(t, "2")
}
