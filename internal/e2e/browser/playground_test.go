package browser

import (
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

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/missing"
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

// open opens the site, which may load fonts from anywhere.
func (p *playground) open(t *testing.T) *page {
	t.Helper()
	tab := newPage(t, "http")
	tab.accepts = scalarMessage
	tab.goTo(strings.TrimPrefix(p.site, tab.base))
	return tab
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

// statusFor is the status line for readers, who must not change what others have created.
func statusFor(op testkit.Operation) string {
	if op.Method == "put" || op.Method == "delete" {
		return "403 Forbidden"
	}
	return "200 OK"
}

const monstera = `[{"id":1,"name":"Monstera deliciosa","tag":"climber"}]`

// Swagger UI on another origin sends every request as it fills it in, and each that the token allows succeeds. The
// operator can reset the store.
func TestSwaggerUI(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	packages, err := testkit.NPM()
	if err != nil {
		missing.Optional(t, "Swagger UI: %v", err)
	}
	play := newPlayground(t, "SwaggerUIBundle", http.FileServer(http.Dir(filepath.Join(packages, "swagger-ui-dist"))))
	p := play.open(t)
	p.click("button.authorize", "Authorize")
	p.typeIn("#auth-bearer-value", play.token)
	p.click(".auth-btn-wrapper button.authorize", "Authorize")
	p.click(".auth-btn-wrapper button.btn-done", "Close")
	all := testkit.Operations()
	for _, op := range all {
		block := "[id=" + js("operations-"+op.Tag+"-"+op.ID) + "] "
		p.click(block + ".opblock-summary-control")
		p.click(block+".try-out__btn", "Try it out")
		p.click(block+"button.execute", "Execute")
		// The headers are shown a moment after the status. They include those that CORS must expose.
		response := p.waitFor("the response to "+op.ID, `((text) => text.includes('x-request-id:') && text)(
			document.querySelector(`+js(block+".live-responses-table tbody")+`)?.innerText.trim() ?? '')`)
		if !strings.HasPrefix(response, statusFor(op)[:3]) {
			t.Errorf("%s: %s", op.ID, response)
		}
		p.click(block + ".opblock-summary-control") // closes it
	}
	if n := eval[int](p, "document.querySelectorAll('.opblock').length"); n != len(all) {
		t.Errorf("Swagger UI shows %d operations, want %d", n, len(all))
	}
	play.wantPlants(t, monstera)

	play.run(t, "PLANTSTORE_URL="+play.service.URL+" PLANTSTORE_TOKEN=$(plantstore token issue --name other "+
		"--store playground) plantstore plants create --id 2 --name Fern")
	play.run(t, play.commands(t, "--name reset"))
	play.wantPlants(t, monstera)
}

// Scalar on another origin sends every request as it fills it in, and each that the token allows succeeds.
func TestScalar(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	packed, err := os.ReadFile(filepath.Join(testkit.Root(), "internal", "console", "scalar", "standalone.js.gz"))
	if err != nil {
		t.Fatal(err)
	}
	play := newPlayground(t, "Scalar.createApiReference", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(packed)
	}))
	p := play.open(t)
	for i, op := range testkit.Operations() {
		p.goTo(strings.TrimPrefix(play.site, p.base) + "#tag/" + op.Tag + "/" + strings.ToUpper(op.Method) + op.Path)
		p.openClient(op.Method + " " + op.Path)
		if i == 0 {
			p.typeIn(scalarClient+"input[placeholder=Token]", play.token)
		}
		p.click(scalarClient+"button", "SendSend "+op.Method+" request to "+play.service.URL+op.Path)
		p.wantVisible(scalarClient+"*", statusFor(op))
		p.click(scalarClient+"button", "Close Client")
		p.wantGone(scalarClient)
	}
	play.wantPlants(t, monstera)
}
