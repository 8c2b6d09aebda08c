package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// create is a function that creates a plant as any web page would.
const create = `(async (service, token, body) => {
	const headers = { Authorization: 'Bearer ' + token, 'Content-Type': 'application/json' };
	try {
		const response = await fetch(service + '/plants', { method: 'POST', headers, body });
		return { status: response.status, body: await response.text(), request: response.headers.get('X-Request-Id') ?? '' };
	} catch (e) {
		return { failure: String(e) };
	}
})`

// A page of another origin can use the API if the operator allows the origin, and otherwise reaches nothing.
func TestOtherOrigins(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "<!doctype html><title>elsewhere</title>")
	}))
	defer other.Close()
	allowed, refused := serve(t, "--cors-origins", other.URL), serve(t, "--cors-origins", "https://docs.example")
	p := newPage(t, "http://127.0.0.1:")
	p.accepts = "error: Access to fetch at '" + refused.URL
	p.goTo(strings.TrimPrefix(other.URL, p.base))
	type outcome struct {
		Status                 int
		Body, Request, Failure string
	}
	send := func(s *service, token, body string) outcome {
		t.Helper()
		return eval[outcome](p, create+"("+js(s.URL, token, body)+")")
	}
	got := send(allowed, allowed.Token, `{"id":1,"name":"Aloe"}`)
	if got.Status != 200 || got.Body != `{"name":"Aloe"}` || got.Request == "" {
		t.Errorf("the page got %+v, want 200, the plant and the request's id", got)
	}
	allowed.want(t, `{"id":1,"name":"Aloe"}`)
	got = send(allowed, mistyped(allowed.Token), `{"id":2,"name":"Fern"}`)
	if got.Status != 401 || !strings.Contains(got.Body, `"error":40103`) {
		t.Errorf("with a wrong token the page got %+v, want 401 and its reason", got)
	}
	if got := send(refused, refused.Token, `{"id":1,"name":"Aloe"}`); !strings.Contains(got.Failure, "Failed to fetch") {
		t.Errorf("the page got %+v, want a refusal by the browser", got)
	}
	refused.wantNone(t, "1")
}

// watchSandboxes keeps the response to POST /sandboxes. On a page with ?lost, it is lost.
const watchSandboxes = `{
	const send = window.fetch;
	window.fetch = async (...request) => {
		const response = await send(...request);
		if (!String(request[0]).endsWith('/sandboxes')) return response;
		if (location.search === '?lost') throw new TypeError('Failed to fetch');
		window.sandbox = await response.clone().json();
		return response;
	};
}`

// The pages of the playground give each reader a sandbox. If there is none, they send requests without a token.
func TestPlaygroundPages(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	packages, err := testkit.NPM()
	if err != nil {
		testkit.Unavailable(t, "swagger-ui-dist is not available: %v", err)
	}
	type lists = func(p *page, service, status string)
	for title, list := range map[string]lists{"Swagger UI": listInSwaggerUI, "Scalar": listInScalar} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			html := testkit.CodeBlock(t, "docs/playground.md", "## "+title, "html")
			files := http.NewServeMux()
			files.Handle("/npm/", http.StripPrefix("/npm/", http.FileServer(http.Dir(packages))))
			docs := httptest.NewServer(files)
			defer docs.Close()
			open := func(path, query string, s *service, status string) *page {
				local := strings.NewReplacer("https://plants.example", s.URL, "https://unpkg.com", "/npm",
					"https://cdn.jsdelivr.net/npm/@scalar/api-reference", s.URL+"/docs/scalar.js")
				files.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { local.WriteString(w, html) })
				p := newPage(t, "http") // Scalar requests a font of another host, which this browser can't reach
				p.accepts = scalarMessage
				p.onLoad(watchSandboxes)
				p.goTo(strings.TrimPrefix(docs.URL, p.base) + path + query + "#tag/plants/GET/plants")
				list(p, s.URL, status)
				return p
			}
			with, without := serve(t, "--sandbox", "--cors-origins", docs.URL), serve(t, "--cors-origins", docs.URL)
			readers := map[string]bool{}
			for _, path := range []string{"/first", "/second"} {
				p := open(path, "", with, "200")
				reader := testkit.Target{URL: with.URL, Token: eval[string](p, "window.sandbox.token")}
				a, err := reader.Send("GET", "/requests", "")
				if err != nil || strings.Count(a.Body, `"number":`) != 1 || !strings.Contains(a.Body, `"status":200`) {
					t.Errorf("the sandbox of the page recorded %s, %v; want one request with the status 200", a.Body, err)
				}
				readers[reader.Token] = true
			}
			if len(readers) != 2 {
				t.Errorf("two readers have %d sandboxes, want one each", len(readers))
			}
			open("/without", "", without, "401")
			open("/lost", "?lost", with, "401")
		})
	}
}

func listInSwaggerUI(p *page, service, status string) {
	p.t.Helper()
	const list = "#operations-plants-listPlants "
	p.click(list + ".opblock-summary-control")
	p.click(list + ".try-out__btn")
	p.click(list + ".execute")
	shown := `document.querySelector(` + js(list+".live-responses-table tbody .response-col_status") + `)?.innerText`
	p.waitFor("the status "+status, shown+`?.startsWith(`+js(status)+`)`, shown)
}

func listInScalar(p *page, service, status string) {
	p.t.Helper()
	p.openClient("get /plants")
	p.click(scalarClient+"button", "SendSend get request to "+service+"/plants")
	p.waitFor("the status "+status, `[...document.querySelectorAll(`+js(scalarClient+"*")+`)].some((e) =>
		e.textContent.trim().startsWith(`+js(status+" ")+`))`)
}
