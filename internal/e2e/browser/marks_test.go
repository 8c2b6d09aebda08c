package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"plantstore/internal/testkit"
)

// Characters without a shape of their own have visible marks wherever a text is shown; fields keep them as they are.
func TestMarks(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s := serve(t)
	s.create(t, `{"id":1,"name":"live \u202eoverridden","tag":"\u009b31m"}`,
		`{"id":2,"name":"\u2067\u0007","tag":"a\nb\tc"}`, `{"id":3,"name":"Fe\u200drn","tag":"می\u200cخواهم 👩\u200d🌾"}`,
		`{"id":4,"name":"x","tag":"\udb40\udc01"}`)
	s.intercept(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		if r.URL.Path == "/token" {
			fmt.Fprint(w, `{"name":"ci\u202e","store":"main\u0085","scopes":["plants:create","plants:read","plants:write"]}`)
			return
		}
		product.ServeHTTP(w, r)
	})
	p := openConsole(t, s)
	p.wantText("#session-token", "ciU+202E")
	p.wantText("#session-store", "mainU+0085")
	p.wantRow("1", "live U+202Eoverridden", "U+009B31m")
	p.wantRow("2", "U+2067U+0007", "a\nb\tc")
	p.wantRow("3", "FeU+200Drn", "می\u200cخواهم 👩\u200d🌾") // Scripts and emoji need joiners.
	p.wantRow("4", "x", "U+E0001")
	p.wantVisible(row("1")+" .c-name .mark", "U+202E")

	p.click(row("1") + " .disclose")
	p.wantText(".json pre", "{\n  \"id\": 1,\n  \"name\": \"live \\u202eoverridden\",\n  \"tag\": \"\\u009b31m\"\n}")
	p.click(row("1") + " .disclose")
	p.click(row("4") + " .disclose")
	p.wantText(".json pre", "{\n  \"id\": 4,\n  \"name\": \"x\",\n  \"tag\": \"\\udb40\\udc01\"\n}")
	p.drop("files\u202e.csv", "id,name\n\"x\u009b\",y\n")
	p.wantText("#import-title", "Imported: filesU+202E.csv")
	p.wantText(".bad-lines bdi", `The id must be a whole number, but is "xU+009B".`)
	p.search("\u202enothing")
	p.wantText("#empty p", "No plant matches U+202Enothing.")
	p.click("#show-all")

	p.click(row("1") + " .edit")
	p.wantVisible(row("1")+" .f-name .note", "Stored: live U+202Eoverridden")
	p.wantVisible(row("1")+" .f-tag .note", "Stored: U+009B31m")
	p.wantValue(row("1")+" .f-name textarea", "live \u202eoverridden")
	if text := eval[string](p, `document.body.textContent`); strings.ContainsAny(text, "\u202e\u009b\u2067\u0085\a") {
		t.Errorf("the page has characters without a mark: %q", text)
	}
	p.typeIn(row("1")+" .f-tag textarea", "tree")
	p.save("1")
	p.wantRow("1", "live U+202Eoverridden", "tree")
	s.want(t, "{\"id\":1,\"name\":\"live \u202eoverridden\",\"tag\":\"tree\"}")
}
