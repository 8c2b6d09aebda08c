package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plantstore/internal/testkit"
)

// limit is the time that a test has for everything on a page.
const limit = 2 * time.Minute

// page is a tab with its own cookies and storage, and what happened on it.
type page struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	messages []chromedp.ConsoleMessage
	requests []string
	dialogs  []string
}

// newPage opens a tab, which is closed at the end of the test. The test fails if a script fails or a dialog
// opens.
func newPage(t *testing.T) *page {
	t.Helper()
	return newPageFor(t, limit)
}

func newPageFor(t *testing.T, limit time.Duration) *page {
	t.Helper()
	if browser == nil {
		testkit.Unavailable(t, "chromium is not installed")
	}
	return openTab(t, browser, limit, chromedp.WithNewBrowserContext())
}

// newTab opens another tab of the same user.
func (p *page) newTab() *page {
	p.t.Helper()
	return openTab(p.t, p.ctx, limit)
}

func openTab(t *testing.T, parent context.Context, limit time.Duration, options ...chromedp.ContextOption) *page {
	t.Helper()
	tabCtx, closeTab := chromedp.NewContext(parent, options...)
	if err := chromedp.Do(tabCtx); err != nil {
		closeTab()
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tabCtx, limit)
	p := &page{t: t, ctx: ctx}
	// Otherwise keys are lost while another window has the focus.
	call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	// A slow machine must not miss a notice, which the page shows for 8 or 10 seconds.
	call(p, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: `{
		const start = window.setTimeout;
		window.setTimeout = (f, ms, ...rest) => start(f, ms === 8000 || ms === 10000 ? 300000 : ms, ...rest);
	}`})

	collectors := p.collect()
	t.Cleanup(func() {
		if t.Failed() {
			p.screenshot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		cancel()
		closeTab()
		collectors.Wait()
		for _, m := range p.messages {
			if m.IsException() {
				t.Errorf("a script of the page failed: %s", m.Text)
			} else if t.Failed() {
				t.Logf("the page's console: %s: %s", m.Type, m.Text)
			}
		}
		if len(p.dialogs) > 0 {
			t.Errorf("the page opened dialogs: %q", p.dialogs)
		}
	})
	return p
}

// collect records the messages, requests and dialogs of the page until its context ends.
func (p *page) collect() *sync.WaitGroup {
	collectors := new(sync.WaitGroup)
	messages := chromedp.Console(p.ctx)
	requests := chromedp.Events(p.ctx, network.RequestWillBeSent)
	dialogs := chromedp.Events(p.ctx, cdppage.JavascriptDialogOpening)
	collectors.Go(func() {
		for m, err := range messages {
			if err == nil {
				p.locked(func() { p.messages = append(p.messages, m) })
			}
		}
	})
	collectors.Go(func() {
		for r, err := range requests {
			if err == nil {
				p.locked(func() { p.requests = append(p.requests, r.Request.URL) })
			}
		}
	})
	collectors.Go(func() {
		for d, err := range dialogs {
			if err == nil {
				p.locked(func() { p.dialogs = append(p.dialogs, d.Type.String()) })
				chromedp.Call(p.ctx, cdppage.HandleJavaScriptDialog, cdppage.HandleJavaScriptDialogParams{})
			}
		}
	})
	return collectors
}

func (p *page) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// openConsole signs in to a service and waits for its list.
func openConsole(t *testing.T, s service) *page {
	t.Helper()
	p := newPage(t)
	p.goTo(s.URL + "/")
	p.enter(s.Token)
	return p
}

// sent counts the requests to a path so far.
func (p *page) sent(path string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range p.requests {
		if u, err := url.Parse(address); err == nil && u.Path == path {
			n++
		}
	}
	return n
}

// drop drops a file on the page, once the page listens.
func (p *page) drop(name, content string) {
	p.t.Helper()
	send := func(event string) string {
		return `((type, name, text) => {
			const dataTransfer = new DataTransfer();
			dataTransfer.items.add(new File([text], name));
			const event = new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true });
			return !document.body.dispatchEvent(event);
		})(` + js(event, name, content) + `)`
	}
	p.waitFor("the page to accept a file", send("dragover"), `document.body?.innerText`)
	if !eval[bool](p, send("drop")) {
		p.t.Fatalf("the page did not take %s", name)
	}
}

func (p *page) enter(token string) {
	p.t.Helper()
	p.typeIn("#token", token)
	p.click("#sign-in button")
	p.wantVisible("#store")
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *page) goTo(address string) {
	p.t.Helper()
	p.do(chromedp.Navigate(address))
}

// eval returns the value of an expression on the page, or of the promise that it returns.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	v, replaced := tryEval[T](p, expression)
	if replaced {
		p.t.Fatalf("%s: another page took the place of this one meanwhile", expression)
	}
	return v
}

// tryEval is eval, but reports if another page took the place of this one meanwhile.
func tryEval[T any](p *page, expression string) (v T, replaced bool) {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	switch {
	case err == nil:
		return v, false
	case strings.Contains(err.Error(), "navigated or closed"), strings.Contains(err.Error(), "context was destroyed"),
		strings.Contains(err.Error(), "Cannot find context"):
		return v, true
	}
	p.t.Fatalf("%s: %v", expression, err)
	panic("unreachable")
}

// js writes values as JavaScript arguments.
func js(values ...string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		b, _ := json.Marshal(v) // It cannot fail for a string.
		quoted[i] = string(b)
	}
	return strings.Join(quoted, ",")
}

// where finds a visible element by its selector and, if given, its text.
const where = `((selector, text) => [...document.querySelectorAll(selector)].find((e) =>
	e.checkVisibility({ visibilityProperty: true }) && (text === undefined || e.textContent.trim() === text)))`

func findElement(selector string, text []string) string {
	return where + "(" + js(append([]string{selector}, text...)...) + ")"
}

func (p *page) wantVisible(selector string, text ...string) {
	p.t.Helper()
	p.waitFor(fmt.Sprintf("%s %q on the page", selector, text), "Boolean("+findElement(selector, text)+")",
		`document.body?.innerText`)
}

func (p *page) wantGone(selector string) {
	p.t.Helper()
	p.waitFor(selector+" to go", "!"+findElement(selector, nil), `document.body?.innerText`)
}

// wantText waits until an element has exactly this text.
func (p *page) wantText(selector, text string) {
	p.t.Helper()
	content := "document.querySelector(" + js(selector) + ")?.textContent"
	p.waitFor(fmt.Sprintf("%s to read %q", selector, text), content+" === "+js(text), content+" ?? 'no such element'")
}

// wantValue waits until a field has this value.
func (p *page) wantValue(selector, text string) {
	p.t.Helper()
	value := "document.querySelector(" + js(selector) + ")?.value"
	p.waitFor(fmt.Sprintf("%s to hold %q", selector, text), value+" === "+js(text), value+" ?? 'no such element'")
}

// waitFor waits until an expression is true. instead is an expression that describes the current state.
func (p *page) waitFor(what, expression, instead string) {
	p.t.Helper()
	waitFor(p.t, limit/2, what, func() (bool, string) {
		if met, _ := tryEval[bool](p, expression); met {
			return true, ""
		}
		state, _ := tryEval[string](p, "String("+instead+")")
		return false, state
	})
}

// click clicks the center of a visible element, once it does not move and nothing covers it.
func (p *page) click(selector string, text ...string) {
	p.t.Helper()
	p.clickWith(chromedp.ModifierNone, selector, text...)
}

// clickWith clicks while a key such as Shift is held.
func (p *page) clickWith(key chromedp.Modifier, selector string, text ...string) {
	p.t.Helper()
	type point struct{ X, Y float64 }
	var before, now *point
	waitFor(p.t, limit/2, fmt.Sprintf("%s %q to be clickable", selector, text), func() (bool, string) {
		before = now
		now, _ = tryEval[*point](p, `((e) => {
			if (!e) return null;
			e.scrollIntoView({ block: 'center', behavior: 'instant' });
			const { x, y, width, height } = e.getBoundingClientRect();
			const at = { X: x + width / 2, Y: y + height / 2 };
			const hit = document.elementFromPoint(at.X, at.Y);
			return e.contains(hit) ? at : null;
		})(`+findElement(selector, text)+`)`)
		state, _ := tryEval[string](p, `document.body?.innerText`)
		return before != nil && now != nil && *before == *now, state
	})
	p.do(chromedp.MouseClickXY(now.X, now.Y, chromedp.ButtonModifiers(key)))
}

// typeIn replaces the value of a field with mouse and keyboard.
func (p *page) typeIn(selector, text string) {
	p.t.Helper()
	p.click(selector)
	p.do(selectAll, chromedp.KeyEvent(text))
}

// These are keys without a character.
const (
	enter     = kb.Enter
	tab       = kb.Tab
	escape    = kb.Escape
	backspace = kb.Backspace
)

var selectAll = chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl))

// press types keys into the element that has the focus.
func (p *page) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// seen returns the messages of the browser's console so far, without those about failed requests.
func (p *page) seen() (messages []string) {
	p.t.Helper()
	const mark = "end of the messages"
	eval[chromedp.Void](p, "console.debug("+js(mark)+")")
	waitFor(p.t, limit/2, "the page's console", func() (bool, string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.ContainsFunc(p.messages, func(m chromedp.ConsoleMessage) bool { return m.Text == mark }), ""
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.messages {
		if m.Text != mark && m.Source != "network" {
			messages = append(messages, fmt.Sprintf("%s: %s", m.Type, m.Text))
		}
	}
	return messages
}

// wantEmptyConsole checks that the browser's console has no message: no violation of the security policy, no warning.
func (p *page) wantEmptyConsole() {
	p.t.Helper()
	if messages := p.seen(); len(messages) > 0 {
		p.t.Errorf("the page's console: %q", messages)
	}
}

// wantOneOrigin checks that every request of the page went to one origin, and that the paths are among them.
func (p *page) wantOneOrigin(origin string, paths ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range p.requests {
		u, err := url.Parse(address)
		if err != nil || u.Scheme+"://"+u.Host != origin && u.Scheme != "data" && u.Scheme != "blob" {
			p.t.Errorf("the page requested %s, which is not at %s", address, origin)
		}
	}
	for _, path := range append(paths, "/plants") {
		if !slices.ContainsFunc(p.requests, func(address string) bool {
			address, _, _ = strings.Cut(address, "?")
			return address == origin+path
		}) {
			p.t.Errorf("the page did not request %s, but %q", path, p.requests)
		}
	}
}

// phone emulates a small touch screen.
func (p *page) phone() {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2)))
}

// scheme sets the preferred color scheme, light or dark. Motion is reduced, so that no screenshot shows a transition.
func (p *page) scheme(value string) {
	p.t.Helper()
	features := []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: value},
		{Name: "prefers-reduced-motion", Value: "reduce"},
	}
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
}

func call[P, R any](p *page, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	result, err := chromedp.Call(p.ctx, command, params)
	if err != nil {
		p.t.Fatal(err)
	}
	return result
}

// screenshot writes a picture of the visible part of the page to artifacts/.
func (p *page) screenshot(name string) {
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		folder := filepath.Join(testkit.Root(), "artifacts")
		if err = os.MkdirAll(folder, 0o755); err == nil {
			err = os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644)
		}
	}
	if err != nil {
		p.t.Logf("no screenshot %s: %v", name, err)
	}
}
