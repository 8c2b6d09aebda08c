package tools

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"plantstore/test/testkit"
	"plantstore/test/testkit/chromium"
)

const (
	swaggerUI = `SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui"})`
	redoc     = `Redoc.init("/openapi.json", {}, document.getElementById("ui"))`
)

// record keeps the messages of the browser's console.
const record = `var messages = [];
	console.error = console.warn = (...message) => messages.push(message.join(' '));
	addEventListener('error', (e) => messages.push(e.message));
	addEventListener('unhandledrejection', (e) => messages.push(String(e.reason)));`

// testPage checks that a page of another origin renders every operation of the description, create first, and that
// the browser's console has no warning or error.
func testPage(t *testing.T, bundle, how, operation string) {
	s := serve(t)
	script := testkit.ReplaceOnce(t, how, "/openapi.json", s.URL+"/openapi.json")
	files := http.NewServeMux()
	files.Handle("/npm/", http.StripPrefix("/npm/", http.FileServer(http.Dir(npm(t)))))
	files.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `<!doctype html><meta charset="utf-8"><div id="ui"></div><script>%s</script>`+
			`<script src="/npm/%s"></script><script>%s</script>`, record, bundle, script)
	})
	origin := httptest.NewServer(files)
	defer origin.Close()
	browser, stop, err := chromium.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if browser == nil {
		testkit.Unavailable(t, "chromium is not installed")
	}
	browser, cancel := context.WithTimeout(browser, limit)
	defer cancel()
	if err := chromedp.Do(browser, chromedp.Navigate(origin.URL+"/page")); err != nil {
		t.Fatal(err)
	}
	var shown []string
	testkit.WaitFor(t, fmt.Sprintf("%d operations", operations()), func() bool {
		shown, err = chromedp.Run(browser, chromedp.Evaluate[[]string](
			fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.textContent)", operation)))
		return err != nil || len(shown) == operations()
	})
	if err != nil || !strings.Contains(shown[0], "/plants") || !strings.Contains(strings.ToLower(shown[0]), "post") {
		t.Errorf("the operations are %.300s, %v; want POST /plants first", strings.Join(shown, "; "), err)
	}
	messages, err := chromedp.Run(browser, chromedp.Evaluate[[]string]("messages"))
	if err != nil || len(messages) > 0 {
		t.Errorf("the browser's console has %q, %v", messages, err)
	}
}
