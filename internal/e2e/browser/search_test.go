package browser

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	cdptarget "github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"plantstore/internal/testkit"
)

func TestSearch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(t, `{"id":`+least+`,"name":"Monstera","tag":"climber"}`, `{"id":3,"name":"Ficus","tag":"MONUMENT"}`,
		`{"id":42,"name":"Aloe","tag":"succulent"}`, `{"id":100,"name":"No. 42"}`)
	p := openConsole(t, s)
	p.wantIDs(least, "3", "42", "100")
	p.wantText("#list-order", "Sorted by id")
	p.wantVisible("th[aria-sort=ascending]", "Id")

	p.click("#search-text")
	p.press("mon") // It searches without Enter, in names and tags, ignoring case.
	p.wantIDs(least, "3")
	p.search("42") // An id comes first.
	p.wantIDs("42", "100")
	p.wantText("#list-order", "Plant 42 first, then sorted by id")
	p.search(least)
	p.wantIDs(least)
	p.search("99999999999999999999") // not an int64
	p.wantText("#empty p", "No plant matches 99999999999999999999.")
	p.search(strings.Repeat("x", 1001))
	p.wantVisible("#list-error bdi", "The search is too long. Shorten it to 1000 characters.")
	p.search("nothing like it")
	p.wantText("#empty p", "No plant matches nothing like it.")
	p.click("#empty button", "Show all plants")
	p.wantIDs(least, "3", "42", "100")
	p.wantValue("#search-text", "")
	p.do(chromedp.NavigateBack())
	p.wantText("#empty p", "No plant matches nothing like it.")
	p.wantValue("#search-text", "nothing like it")
}

// A response to an earlier search never replaces that of a later one, and the earlier request is cancelled.
func TestLateSearch(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`, `{"id":2,"name":"Ficus"}`)
	var cancelled atomic.Bool
	s.intercept(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		if r.URL.Query().Get("q") != "aloe" {
			product.ServeHTTP(w, r)
			return
		}
		<-r.Context().Done()
		cancelled.Store(true)
	})
	p := openConsole(t, s)
	p.wantIDs("1", "2")
	p.search("aloe")
	p.waitFor("the first search", `location.hash === '#q=aloe'`, `location.hash`)
	p.search("ficus")
	p.wantIDs("2")
	testkit.WaitFor(t, "the first search to be cancelled", cancelled.Load)
	p.click("#refresh") // It waits for a later response.
	p.wantGone("#table[aria-busy]")
	p.wantIDs("2")
}

// A search follows short and empty pages, up to a number of requests, and then offers to go on. If it must wait for the
// rate of the token, it keeps the pages that it has received.
func TestSearchFurther(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s := serve(t)
	var requests atomic.Int32
	// A real search ends a page after 10,000 plants. This one ends it after every 10 ids, and refuses every second
	// request.
	s.intercept(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		if r.URL.Query().Get("q") != "aloe" {
			product.ServeHTTP(w, r)
			return
		}
		if requests.Add(1)%2 == 1 {
			refuse(w)
			return
		}
		after := 0
		fmt.Sscan(r.URL.Query().Get("after"), &after)
		w.Header().Set("Content-Type", "application/json")
		if after < 60 {
			w.Header().Set("Link",
				fmt.Sprintf(`<https://public.example/plants?after=%d&limit=20&q=aloe>; rel="next"`, after+10))
		}
		switch after {
		case 0, 50:
			fmt.Fprintf(w, `[{"id":%d,"name":"Aloe"}]`, after+1)
		default:
			fmt.Fprint(w, `[]`)
		}
	})
	p := newPage(t, s.front)
	p.hurry()
	p.open(s.Token)
	p.search("aloe")
	p.wantVisible("#further", "Continue searching")
	p.wantText(".rest p", "More plants may match. Searched up to id 40.")
	p.wantIDs("1")
	p.click("#further")
	p.wantIDs("1", "51")
	p.wantGone("#further")
	if got, want := requests.Load(), int32(2*7); got != want {
		t.Errorf("the search sent %d requests, want 2 for each of 7 pages", got)
	}
}

// A row opens to its JSON, which can be copied, also as a command that works in a shell.
func TestCopy(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	const body = `{"id":` + least + `,"name":"It's \"quoted\" ` + "`x`" + ` $HOME \\ and\nlong","tag":"a'b"}`
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
	p.click(row(least) + " .disclose")
	p.wantText(".json pre", "{\n  \"id\": "+least+",\n"+
		"  \"name\": \"It's \\\"quoted\\\" `x` $HOME \\\\ and\\nlong\",\n  \"tag\": \"a'b\"\n}")
	copied := func(button, said string) string {
		t.Helper()
		p.click(button)
		p.wantText("#status span", said)
		return eval[string](p, `navigator.clipboard.readText()`)
	}
	if got := copied(".copy-id", "The id is copied."); got != least {
		t.Errorf("the copied id is %q, want %q", got, least)
	}
	if got := copied(".copy-json", "The JSON is copied."); got != body {
		t.Errorf("the copied JSON is %s, want %s", got, body)
	}
	command := copied(".copy-curl", "The command is copied.")
	if strings.Contains(command, s.Token) {
		t.Errorf("the command has the token: %s", command)
	}
	p.remove(least)
	p.wantGone(row(least))
	shell := exec.CommandContext(t.Context(), "sh", "-c", command)
	shell.Env = []string{"PATH=/usr/bin:/bin:/usr/local/bin", "PLANTSTORE_TOKEN=" + s.Token}
	if out, err := shell.Output(); err != nil {
		t.Errorf("%s: %v: %s", command, err, out)
	}
	s.want(t, body)
}
