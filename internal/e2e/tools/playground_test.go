package tools

import (
	"compress/gzip"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"plantstore/internal/testkit"
)

// playground is the service and the documentation site of docs/playground.md, on three ports of this machine: the
// service, the proxy at its public address, and the site.
type playground struct {
	service *testkit.Server // its URL is the public address
	site    string
	token   string // for readers
	env     []string
	hosts   *strings.Replacer // replaces the addresses of the document
	checks  int               // tokens that wantPlants has issued
}

// newPlayground starts what the document describes, with its commands. The site serves files next to the page, which
// is the block of the document that contains a text.
func newPlayground(t *testing.T, pageWith string, files http.Handler) *playground {
	t.Helper()
	p := &playground{}
	var html string
	site := http.NewServeMux()
	// No response names an encoding: the page has to.
	site.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		kind, _, _ := strings.Cut(mime.TypeByExtension(filepath.Ext(r.URL.Path)), ";")
		w.Header().Set("Content-Type", kind)
		files.ServeHTTP(w, r)
	})
	site.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, html)
	})
	var service *url.URL
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(service) }}
	siteServer, proxyServer := httptest.NewUnstartedServer(site), httptest.NewUnstartedServer(proxy)
	t.Cleanup(siteServer.Close)
	t.Cleanup(proxyServer.Close)
	public := "http://" + proxyServer.Listener.Addr().String()
	p.site = "http://" + siteServer.Listener.Addr().String()
	p.hosts = strings.NewReplacer("https://plants.example", public, "https://docs.example", p.site,
		"https://unpkg.com/swagger-ui-dist/", "", "https://cdn.jsdelivr.net/npm/@scalar/api-reference", "scalar.js")
	html = p.hosts.Replace(block(t, pageWith))

	p.env = append(os.Environ(), "PATH="+filepath.Dir(testkit.Binary)+":"+os.Getenv("PATH"),
		"PLANTSTORE_DB="+filepath.Join(t.TempDir(), "plants.db"),
		"PLANTSTORE_LISTEN=127.0.0.1:0", "PLANTSTORE_OPS_LISTEN=127.0.0.1:0")
	p.service = testkit.Launch(t, p.shell("exec "+p.commands(t, "plantstore serve")))
	p.service.WaitServing()
	address := regexp.MustCompile(`"listening":"([^"]+)"`).FindStringSubmatch(p.service.Stderr.String())
	if address == nil || p.service.URL != public {
		t.Fatalf("the service is at %s, want %s; it listens on %q", p.service.URL, public, address)
	}
	service = &url.URL{Scheme: "http", Host: address[1]}
	siteServer.Start() // the handlers read the variables above
	proxyServer.Start()
	p.token = strings.TrimSpace(p.run(t, p.commands(t, "--name playground")))
	return p
}

// block returns the code block of the document that contains a text.
func block(t *testing.T, with string) string {
	t.Helper()
	document, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "playground.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```[a-z]+\n(.*?)```\n").FindAllStringSubmatch(string(document), -1) {
		if strings.Contains(m[1], with) {
			return m[1]
		}
	}
	t.Fatalf("docs/playground.md has no block with %q", with)
	return ""
}

// commands returns the commands of a block, for this machine.
func (p *playground) commands(t *testing.T, with string) string {
	t.Helper()
	return p.hosts.Replace(strings.ReplaceAll("\n"+block(t, with), "\n$ ", "\n")[1:])
}

func (p *playground) shell(script string) *exec.Cmd {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Env = p.env
	return cmd
}

func (p *playground) run(t *testing.T, script string) string {
	t.Helper()
	out, err := p.shell(script).Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// wantPlants checks the plants of the readers' store, and that the store main has none.
func (p *playground) wantPlants(t *testing.T, want string) {
	t.Helper()
	testkit.WantResponse(t, "the store main", p.service.Do(t, "GET", "/plants", ""), 200, "[]")
	p.checks++
	operator := p.run(t, fmt.Sprintf("plantstore token issue --name check-%d --store playground", p.checks))
	a := p.service.Do(t, "GET", "/plants", "", "Authorization: Bearer "+strings.TrimSpace(operator))
	testkit.WantResponse(t, "the store playground", a, 200, want)
}

// spend sends requests with the readers' token, as fast as its rate allows, until the returned function is called.
func (p *playground) spend() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
				testkit.Target{URL: p.service.URL, Token: p.token}.Send("GET", "/plants/1", "")
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

const monstera = `[{"id":1,"name":"Monstera deliciosa","tag":"climber"}]`

// Swagger UI on another origin sends every request as it fills it in. Each that the token allows succeeds until the
// rate is exceeded.
func TestSwaggerUI(t *testing.T) {
	t.Parallel()
	files := http.FileServer(http.Dir(filepath.Join(packages(t), "node_modules", "swagger-ui-dist")))
	play := newPlayground(t, "SwaggerUIBundle", files)
	p := open(t, play.site)
	p.click("button.authorize", "Authorize")
	p.typeIn("#auth-bearer-value", play.token)
	p.click(".auth-btn-wrapper button.authorize", "Authorize")
	p.click(".auth-btn-wrapper button.btn-done", "Close")

	const blocks = "document.querySelectorAll('.opblock')"
	p.wait("the operations", blocks+".length")
	ids := eval[[]string](p, "[..."+blocks+"].map((e) => e.id)")
	if got := len(ids); got != operations(t) {
		t.Errorf("Swagger UI shows %d operations, want %d", got, operations(t))
	}
	execute := func(id string) (status, response string) {
		block := "[id=" + js(id) + "] "
		p.click(block+".opblock-summary-control", "")
		p.click(block+".try-out__btn", "Try it out")
		p.click(block+"button.execute", "Execute")
		status = p.wait("the response to "+id,
			"document.querySelector("+js(block+".live-responses-table tbody .response-col_status")+")?.textContent.slice(0, 3)")
		// The headers and the body are shown a moment after the status.
		response = p.wait("the headers of the response to "+id, `((text) => text.includes('x-request-id:') &&
			(!text.startsWith('429') || text.includes('"message":')) && text)(
			document.querySelector(`+js(block+".live-responses-table tbody")+`)?.innerText.trim() ?? '')`)
		p.click(block+"button.btn-clear", "Clear")
		p.click(block+".try-out__btn", "Cancel")
		p.click(block+".opblock-summary-control", "") // closes it
		return status, response
	}
	for _, id := range ids {
		status, response := execute(id)
		want := "200"
		if strings.HasSuffix(id, "replacePlant") || strings.HasSuffix(id, "removePlant") {
			want = "403"
		}
		if status != want {
			t.Errorf("%s: %s", id, response)
		}
		if strings.HasSuffix(id, "createPlant") {
			play.wantPlants(t, monstera)
		}
	}
	defer play.spend()()
	for status, response := "", ""; status != "429"; {
		status, response = execute("operations-plants-createPlant")
		if status == "429" && (!strings.Contains(response, "exceeded its rate of 10/m with a burst of 10; retry in ") ||
			!strings.Contains(response, "retry-after: ")) {
			t.Errorf("over the rate, the page shows %s", response)
		}
	}
	play.run(t, "PLANTSTORE_URL="+play.service.URL+" PLANTSTORE_TOKEN=$(plantstore token issue --name other "+
		"--store playground) plantstore plants create --id 2 --name Fern")
	play.run(t, play.commands(t, "--name reset"))
	play.wantPlants(t, monstera)
}

// Scalar on another origin sends every request as it fills it in, and each that the token allows succeeds.
func TestScalar(t *testing.T) {
	t.Parallel()
	script := gunzip(t, filepath.Join(testkit.Root(), "internal", "console", "scalar", "standalone.js.gz"))
	play := newPlayground(t, "Scalar.createApiReference", http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { w.Write(script) }))
	p := open(t, play.site)
	const client = `[role=dialog][aria-label="API Client"] `
	for i, op := range []struct{ tag, method, path, status string }{
		{"plants", "post", "/plants", "200 OK"},
		{"plants", "get", "/plants", "200 OK"},
		{"plants", "get", "/plants/{id}", "200 OK"},
		{"plants", "put", "/plants/{id}", "403 Forbidden"},
		{"plants", "delete", "/plants/{id}", "403 Forbidden"},
		{"token", "get", "/token", "200 OK"},
		{"token", "get", "/activity", "200 OK"},
	} {
		p.do(chromedp.Navigate(play.site + "#tag/" + op.tag + "/" + strings.ToUpper(op.method) + op.path))
		p.clickFor("button", "Test Request("+op.method+" "+op.path+")", client)
		if i == 0 {
			p.typeIn(client+"input[placeholder=Token]", play.token)
		}
		p.click(client+"button", "Send")
		p.wait(op.status+" for "+op.method+" "+op.path, element(client+"*", op.status))
		p.click(client+"button", "Close Client")
		p.wait("the client to close", "!"+element(client, ""))
		if i == 0 {
			play.wantPlants(t, monstera)
		}
	}
}

func gunzip(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
