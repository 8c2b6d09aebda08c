package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"plantstore/internal/testkit"
)

// stopBrowser ends the browser, if a test has started it.
var stopBrowser = func() {}

// browser starts the browser that the tests share. It works for root and reaches only this machine.
var browser = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	profile, err := os.MkdirTemp("", "plantstore-tools-")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(profile),
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(time.Minute), // Its start is slow on a busy machine.
	)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	stopBrowser = func() {
		cancel()
		stopAllocator()
		os.RemoveAll(profile)
	}
	return ctx, chromedp.Do(ctx)
})

// page is a tab with its own cookies and storage.
type page struct {
	t   *testing.T
	ctx context.Context
}

func open(t *testing.T, address string) page {
	t.Helper()
	b, err := browser()
	if err != nil {
		testkit.Unavailable(t, "chromium: %v", err)
	}
	ctx, closeTab := chromedp.NewContext(b, chromedp.WithNewBrowserContext())
	p := page{t, ctx}
	t.Cleanup(func() {
		if t.Failed() {
			p.screenshot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		closeTab()
	})
	p.do(chromedp.Navigate(address))
	return p
}

func (p page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// eval returns the value of an expression on the page.
func eval[T any](p page, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// js writes values as JavaScript.
func js(values ...any) string {
	written := make([]string, len(values))
	for i, v := range values {
		b, _ := json.Marshal(v) // It cannot fail for what the tests write.
		written[i] = string(b)
	}
	return strings.Join(written, ",")
}

// element is a visible element with a selector, whose text starts with the given one.
func element(selector, text string) string {
	return `((selector, text) => [...document.querySelectorAll(selector)].find((e) =>
		e.checkVisibility({ visibilityProperty: true }) && e.textContent.trim().startsWith(text)))(` +
		js(selector, text) + `)`
}

// wait waits until an expression has a value that is neither empty, zero nor false, and returns it as text.
func (p page) wait(what, expression string) (value string) {
	p.t.Helper()
	for deadline := time.Now().Add(testkit.Deadline); value == ""; time.Sleep(20 * time.Millisecond) {
		if value = eval[string](p, "String(("+expression+") || '')"); value == "" && time.Now().After(deadline) {
			p.t.Fatalf("waited %v for %s; the page shows %.2000s", testkit.Deadline, what,
				cmp.Or(eval[string](p, "document.body.innerText"), "nothing"))
		}
	}
	return value
}

// place is the centre of an element in the window, or empty while it is covered or absent.
func place(selector, text string) string {
	return `((e) => {
		if (!e) return '';
		e.scrollIntoView({ block: 'center', behavior: 'instant' });
		const { x, y, width, height } = e.getBoundingClientRect();
		const at = { X: x + width / 2, Y: y + height / 2 };
		return e.contains(document.elementFromPoint(at.X, at.Y)) ? JSON.stringify(at) : '';
	})(` + element(selector, text) + `)`
}

// click clicks an element as soon as it does not move and nothing covers it.
func (p page) click(selector, text string) {
	p.t.Helper()
	what := fmt.Sprintf("%s %q to be clickable", selector, text)
	last, now := "", p.wait(what, place(selector, text))
	for last != now {
		last, now = now, p.wait(what, place(selector, text))
	}
	p.clickAt(now)
}

func (p page) clickAt(place string) {
	p.t.Helper()
	at := decode[struct{ X, Y float64 }](p.t, []byte(place))
	p.do(chromedp.MouseClickXY(at.X, at.Y))
}

// clickFor clicks an element until another appears. The first may move away at any time, while a page loads its parts.
func (p page) clickFor(selector, text, appears string) {
	p.t.Helper()
	start := time.Now()
	for last := ""; eval[bool](p, "!"+element(appears, "")); time.Sleep(200 * time.Millisecond) {
		now := eval[string](p, place(selector, text))
		if now != "" && now == last {
			p.clickAt(now)
		}
		last = now
		if time.Since(start) > testkit.Deadline {
			p.t.Fatalf("waited %v for %s after a click on %s %q", testkit.Deadline, appears, selector, text)
		}
	}
}

// typeIn types into a field.
func (p page) typeIn(selector, text string) {
	p.t.Helper()
	p.click(selector, "")
	p.do(chromedp.KeyEvent(text))
}

// screenshot writes a picture of the visible part of the page to artifacts/.
func (p page) screenshot(name string) {
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
