package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plantstore/test/testkit"
)

// limit is how long a page may take for anything. It is generous, since the machine may be busy.
const limit = 2 * time.Minute

// page is a tab with its own cookies and storage, and what happened on it.
type page struct {
	t       *testing.T
	ctx     context.Context
	base    string // the address that all its requests must start with
	accepts string // the start of messages in the browser's console that are not failures, if there are any

	collectors sync.WaitGroup
	mu         sync.Mutex // guards the rest
	messages   []string   // of the browser's console, without those about failed requests
	requests   []string   // addresses
	dialogs    []string   // kinds
}

// newPage opens a tab, which is closed at the end of the test. The test fails if the browser's console has a message,
// such as a violation of the security policy, if a dialog opens, or if a request goes to another address.
func newPage(t *testing.T, base string) *page {
	t.Helper()
	if browser == nil {
		testkit.Unavailable(t, "chromium is not installed")
	}
	return openTab(t, browser, base, chromedp.WithNewBrowserContext())
}

// newTab opens another tab of the same user.
func (p *page) newTab() *page {
	p.t.Helper()
	return openTab(p.t, p.ctx, p.base)
}

func openTab(t *testing.T, parent context.Context, base string, options ...chromedp.ContextOption) *page {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(parent, options...)
	p := &page{t: t, ctx: ctx, base: base}
	if err := chromedp.Do(ctx); err != nil {
		closeTab()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			p.screenshot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		} else {
			p.flushMessages()
		}
		closeTab()
		p.collectors.Wait()
		p.wantNothingElse()
	})
	collect(p, chromedp.Console(ctx), func(m chromedp.ConsoleMessage) {
		if m.Source != "network" {
			p.messages = append(p.messages, fmt.Sprintf("%s: %s", m.Type, m.Text))
		}
	})
	collect(p, chromedp.Events(ctx, network.RequestWillBeSent), func(r network.EventRequestWillBeSent) {
		p.requests = append(p.requests, r.Request.URL)
	})
	collect(p, chromedp.Events(ctx, cdppage.JavascriptDialogOpening), func(d cdppage.EventJavascriptDialogOpening) {
		p.dialogs = append(p.dialogs, d.Type.String())
		chromedp.Call(ctx, cdppage.HandleJavaScriptDialog, cdppage.HandleJavaScriptDialogParams{}) // It stays on the page.
	})
	// Otherwise keys are lost while another window has the focus.
	call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	p.onLoad(`{
		// A slow machine must not miss a notice, which the page shows for 8 or 10 seconds.
		const start = window.setTimeout;
		window.setTimeout = (f, ms, ...rest) => start(f, ms === 8000 || ms === 10000 ? 300000 : ms, ...rest);
	}`)
	return p
}

// collect records events until the page is closed.
func collect[E any](p *page, events iter.Seq2[E, error], record func(E)) {
	p.collectors.Go(func() {
		for e, err := range events {
			if err == nil {
				p.mu.Lock()
				record(e)
				p.mu.Unlock()
			}
		}
	})
}

const endOfMessages = "debug: end of the messages"

// flushMessages waits until all messages of the browser's console are recorded.
func (p *page) flushMessages() {
	p.t.Helper()
	tryEval[any](p, "console.debug('end of the messages'); null")
	testkit.WaitFor(p.t, "the browser's console", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Contains(p.messages, endOfMessages)
	})
}

// wantNothingElse checks what happened on a page that is closed.
func (p *page) wantNothingElse() {
	for _, m := range p.messages {
		if m != endOfMessages && (p.accepts == "" || !strings.HasPrefix(m, p.accepts)) {
			p.t.Errorf("the browser's console: %s", m)
		}
	}
	for _, address := range p.requests {
		if !strings.HasPrefix(address, p.base) && !strings.HasPrefix(address, "data:") &&
			!strings.HasPrefix(address, "blob:"+p.base) {
			p.t.Errorf("the page requested %s, which is not at %s", address, p.base)
		}
	}
	if len(p.dialogs) > 0 {
		p.t.Errorf("the page opened dialogs: %q", p.dialogs)
	}
}

// onLoad runs a script before those of each page that the tab loads.
func (p *page) onLoad(script string) {
	p.t.Helper()
	call(p, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
}

// hurry makes the clock of the pages ten times as fast, except for the time-out of a request.
func (p *page) hurry() {
	p.t.Helper()
	p.onLoad(`{
		const now = performance.now.bind(performance);
		performance.now = () => 10 * now();
		for (const name of ['setTimeout', 'setInterval']) {
			const start = window[name];
			window[name] = (f, ms, ...rest) => start(f, ms < 8000 ? ms / 10 : ms, ...rest);
		}
	}`)
}

// do runs steps, each of which takes a moment on any machine.
func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

func call[P, R any](p *page, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		p.t.Fatal(err)
	}
	return result
}

// goTo opens a path below the base address.
func (p *page) goTo(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.base + path))
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
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err == nil {
		return v, false
	}
	for _, reason := range []string{"navigated or closed", "context was destroyed", "Cannot find context"} {
		if strings.Contains(err.Error(), reason) {
			return v, true
		}
	}
	p.t.Fatalf("%s: %v", expression, err)
	panic("unreachable")
}

// js writes values as JavaScript arguments.
func js(values ...string) string {
	b, _ := json.Marshal(values) // It cannot fail for strings.
	return string(b[1 : len(b)-1])
}

// find is an expression for a visible element with a selector and, if given, a text.
func find(selector string, text ...string) string {
	return `((selector, text) => [...document.querySelectorAll(selector)].find((e) =>
		e.checkVisibility({ visibilityProperty: true }) && (text === undefined || e.textContent.trim() === text)))(` +
		js(append([]string{selector}, text...)...) + `)`
}

// waitFor waits until an expression has a value that is neither empty, zero nor false, and returns it as text. The
// error of a failed test has the value of another expression, and the text of the page.
func (p *page) waitFor(what, expression string, instead ...string) (value string) {
	p.t.Helper()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if value, _ = tryEval[string](p, "String(("+expression+") || '')"); value != "" {
			return value
		}
		if time.Since(start) > limit {
			state, _ := tryEval[string](p, "String("+cmp.Or(strings.Join(instead, ""), "undefined")+")")
			text, _ := tryEval[string](p, "String(document.body?.innerText)")
			p.t.Fatalf("waited %v for %s; found %.2000s; the page has %.2000s", limit, what, state, text)
		}
	}
}

func (p *page) wantVisible(selector string, text ...string) {
	p.t.Helper()
	p.waitFor(fmt.Sprintf("%s %q on the page", selector, text), "Boolean("+find(selector, text...)+")")
}

func (p *page) wantGone(selector string) {
	p.t.Helper()
	p.waitFor(selector+" to go", "!"+find(selector))
}

// wantText waits until an element has exactly this text.
func (p *page) wantText(selector, text string) {
	p.t.Helper()
	p.wantProperty(selector, "textContent", text)
}

// wantValue waits until a field has this value.
func (p *page) wantValue(selector, text string) {
	p.t.Helper()
	p.wantProperty(selector, "value", text)
}

func (p *page) wantProperty(selector, property, text string) {
	p.t.Helper()
	value := "document.querySelector(" + js(selector) + ")?." + property
	p.waitFor(fmt.Sprintf("%s of %s to be %q", property, selector, text), value+" === "+js(text), value)
}

// wantFocus waits until an element has the focus, which must be visible.
func (p *page) wantFocus(selector string) {
	p.t.Helper()
	p.waitFor("the focus on "+selector, `document.activeElement.matches(`+js(selector)+`)`,
		`document.activeElement.outerHTML`)
	const visible = `document.activeElement.matches('h1') || document.activeElement.matches(':focus-visible') &&
		getComputedStyle(document.activeElement).outlineStyle !== 'none'`
	if !eval[bool](p, visible) {
		p.t.Errorf("the focus on %s is not visible", selector)
	}
}

// place is an expression for the center of a visible element, or empty while it is covered or absent.
func place(selector string, text ...string) string {
	return `((e) => {
		if (!e) return '';
		e.scrollIntoView({ block: 'center', behavior: 'instant' });
		const { x, y, width, height } = e.getBoundingClientRect();
		const at = [x + width / 2, y + height / 2];
		return e.contains(document.elementFromPoint(...at)) ? JSON.stringify(at) : '';
	})(` + find(selector, text...) + `)`
}

// click clicks the center of a visible element, once it does not move and nothing covers it.
func (p *page) click(selector string, text ...string) {
	p.t.Helper()
	p.clickWith(chromedp.ModifierNone, selector, text...)
}

// clickWith clicks while a key such as Shift is held.
func (p *page) clickWith(key chromedp.Modifier, selector string, text ...string) {
	p.t.Helper()
	what := fmt.Sprintf("%s %q to be clickable", selector, text)
	last, now := "", p.waitFor(what, place(selector, text...))
	for last != now {
		last, now = now, p.waitFor(what, place(selector, text...))
	}
	p.clickAt(now, chromedp.ButtonModifiers(key))
}

func (p *page) clickAt(place string, options ...chromedp.MouseOption) {
	p.t.Helper()
	var at [2]float64
	if err := json.Unmarshal([]byte(place), &at); err != nil {
		p.t.Fatal(err)
	}
	p.do(chromedp.MouseClickXY(at[0], at[1], options...))
}

// These are keys without a character.
const (
	enter     = kb.Enter
	tab       = kb.Tab
	escape    = kb.Escape
	backspace = kb.Backspace
)

var arrowRight = chromedp.KeyEvent(kb.ArrowRight)

var selectAll = chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl))

// press types keys into the element that has the focus.
func (p *page) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// typeIn replaces the value of a field. The text may end with keys such as enter.
func (p *page) typeIn(selector, text string) {
	p.t.Helper()
	p.click(selector)
	p.do(selectAll)
	characters := strings.TrimRight(text, enter+backspace)
	call(p, input.InsertText, input.InsertTextParams{Text: characters})
	p.press(text[len(characters):])
}

// screenshot writes a picture of the visible part of the page to artifacts/.
func (p *page) screenshot(name string) {
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
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
