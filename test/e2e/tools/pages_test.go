package tools

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"plantstore/internal/httpapi"
	"plantstore/test/testkit"
	"plantstore/test/testkit/chromium"
)

const (
	swaggerUI = `SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui"})`
	redoc     = `Redoc.init("/openapi.json", {}, document.querySelector("#ui"))`
)

func testSwaggerUI(t *testing.T) {
	testPage(t, "swagger-ui-dist/swagger-ui-bundle.js", swaggerUI, ".opblock-summary-control:not(.webhooks *)")
}

func testRedoc(t *testing.T) {
	testPage(t, "redoc/bundles/redoc.standalone.js", redoc, `[id*="/operation/"]`)
}

// testPage checks that a page of another origin renders every operation of the description, create first, and that
// the browser's console has no message.
func testPage(t *testing.T, bundle, script, operation string) {
	s := serve(t)
	script = testkit.ReplaceOnce(t, script, "/openapi.json", s.URL+"/openapi.json")
	files := http.NewServeMux()
	files.Handle("/npm/", http.StripPrefix("/npm/", http.FileServer(http.Dir(npm(t)))))
	files.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><div id="ui"></div>`+
			`<script src="/npm/%s"></script><script>%s</script>`, bundle, script)
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
	console := make(chan string, 100)
	go func() {
		defer close(console)
		for m, err := range chromedp.Console(browser) {
			if err == nil {
				console <- fmt.Sprintf("%s: %s", m.Type, m.Text)
			}
		}
	}()
	if err := chromedp.Do(browser, chromedp.Navigate(origin.URL+"/page")); err != nil {
		t.Fatal(err)
	}
	var shown []string
	routes := 0
	for _, r := range httpapi.Routes() {
		if !r.Sandbox {
			routes++
		}
	}
	testkit.WaitFor(t, fmt.Sprintf("%d operations", routes), func() bool {
		shown, err = chromedp.Run(browser, chromedp.Evaluate[[]string](
			fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.textContent)", operation)))
		return err != nil || len(shown) == routes
	})
	if err != nil || !strings.Contains(shown[0], "/plants") || !strings.Contains(strings.ToLower(shown[0]), "post") {
		t.Errorf("the first operation is %.300s, %v; want POST /plants", shown, err)
	}
	cancel()
	for m := range console {
		t.Errorf("the browser's console: %s", m)
	}
}
