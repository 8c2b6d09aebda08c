package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mounted returns a handler of the routes under a prefix.
func mounted(t *testing.T, prefix string) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, handler := range Routes(prefix, false) {
		mux.Handle(pattern, handler)
	}
	return mux
}

func request(h http.Handler, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, res *http.Response) []byte {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// surface has the content type of each path.
var surface = func() map[string]string {
	types := map[string]string{
		".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	}
	all := map[string]string{
		"/": "text/html; charset=utf-8", "/docs": "text/html; charset=utf-8", "/docs/scalar.js": types[".js"],
		"/console/preact.js": types[".js"], "/docs/errors": "text/html; charset=utf-8",
		"/docs/bodies": "text/html; charset=utf-8",
	}
	entries, err := os.ReadDir("assets")
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		if mediaType := types[path.Ext(entry.Name())]; mediaType != "" {
			all["/console/"+entry.Name()] = mediaType
		}
	}
	return all
}()

// wantHeaders checks headers; the pairs alternate between names and values, "" for an absent header.
func wantHeaders(t *testing.T, what string, res *http.Response, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := res.Header.Get(pairs[i]); got != pairs[i+1] {
			t.Errorf("%s: %s %q, want %q", what, pairs[i], got, pairs[i+1])
		}
	}
}

// Every file is served below every prefix with its type, its policy and its own ETag.
func TestFiles(t *testing.T) {
	for _, prefix := range []string{"", "/some/where"} {
		h, seen := mounted(t, prefix), map[string]string{}
		for path, contentType := range surface {
			policy, encoding := consolePolicy, ""
			switch path {
			case "/docs":
				policy = referencePolicy
			case "/docs/scalar.js":
				policy, encoding = referencePolicy, "gzip"
			case "/docs/errors", "/docs/bodies":
				policy = textPolicy
			}
			path = prefix + path
			res := request(h, "GET", path)
			if res.StatusCode != http.StatusOK {
				t.Errorf("GET %s = %d", path, res.StatusCode)
			}
			wantHeaders(t, path, res, "Content-Type", contentType, "Content-Encoding", encoding,
				"Content-Length", strconv.Itoa(len(body(t, res))), "Cache-Control", "no-cache",
				"Content-Security-Policy", policy, "X-Content-Type-Options", "nosniff", "Referrer-Policy", "no-referrer",
				"Set-Cookie", "")
			etag := res.Header.Get("ETag")
			if seen[etag] != "" || !regexp.MustCompile(`^"[0-9a-f]{24}"$`).MatchString(etag) {
				t.Errorf("GET %s: ETag %s, which %s has too", path, etag, seen[etag])
			}
			seen[etag] = path
			wantRevalidated(t, h, path, etag)
		}
		redirects := 0
		if prefix != "" {
			redirects = 1 // to the trailing slash
		}
		if got, want := len(Routes(prefix, true)), len(surface)+redirects; got != want {
			t.Errorf("Routes(%q) has %d routes, want %d", prefix, got, want)
		}
	}
	res := request(mounted(t, "/api"), "GET", "/api")
	wantHeaders(t, "/api", res, "Location", "/api/")
	if res.StatusCode != http.StatusPermanentRedirect {
		t.Errorf("GET /api = %d", res.StatusCode)
	}
}

// wantRevalidated checks that a file is sent again only if its ETag differs.
func wantRevalidated(t *testing.T, h http.Handler, path, etag string) {
	t.Helper()
	for header, want := range map[string]int{
		etag: 304, "W/" + etag: 304, `"other", ` + etag: 304, "*": 304, `"other"`: 200,
	} {
		res := request(h, "GET", path, "If-None-Match", header)
		if got := body(t, res); res.StatusCode != want || (len(got) == 0) != (want == 304) {
			t.Errorf("GET %s with If-None-Match %s = %d and %d bytes, want %d", path, header, res.StatusCode, len(got), want)
		}
		wantHeaders(t, path, res, "ETag", etag)
	}
}

// The pages are small, use no other host, contain nothing inline that the policy
// would refuse, and never turn text into markup.
func TestOwnFiles(t *testing.T) {
	const most = 192 << 10
	total := 0
	forbidden := map[string]*regexp.Regexp{
		"a URL of another host":     regexp.MustCompile(`(?i)(https?:)?//[a-z0-9-]+\.[a-z]`),
		"an inline script or style": regexp.MustCompile(`(?i)<style|<script>|\sstyle="|\son[a-z]+="|javascript:`),
		"markup made from text": regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|` +
			`createContextualFragment|\beval\(|new Function`),
		"an absolute path": regexp.MustCompile(`(?:href|src)="/`),
	}
	err := fs.WalkDir(files, "assets", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		total += len(content)
		// The XML namespace of SVG is an identifier; nothing is loaded.
		text := strings.ReplaceAll(string(content), "http://www.w3.org/2000/svg", "")
		for what, re := range forbidden {
			if found := re.FindString(text); found != "" {
				t.Errorf("%s contains %s: %q", path, what, found)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total > most {
		t.Errorf("the pages are %d bytes, want at most %d", total, most)
	}
}

// On a server with sandboxes both pages say so, and browsers that have cached the other version load them again.
func TestSandboxOffered(t *testing.T) {
	without, with := mounted(t, ""), http.NewServeMux()
	for pattern, handler := range Routes("", true) {
		with.Handle(pattern, handler)
	}
	for _, page := range []string{"/", "/docs"} {
		a, b := request(without, "GET", page), request(with, "GET", page)
		for html, want := range map[string]bool{string(body(t, a)): false, string(body(t, b)): true} {
			if got := strings.Contains(html, `<meta name="sandbox" content="on">`); got != want {
				t.Errorf("%s offers a sandbox: %t, want %t", page, got, want)
			}
		}
		if a.Header.Get("ETag") == b.Header.Get("ETag") {
			t.Errorf("%s has the same ETag with and without sandboxes", page)
		}
	}
}

// Every URL in a page has a route.
func TestLinks(t *testing.T) {
	h := mounted(t, "/api")
	elsewhere := map[string]bool{"openapi.json": true} // served by the API
	for _, page := range []string{"/api/", "/api/docs", "/api/docs/errors", "/api/docs/bodies"} {
		html := body(t, request(h, "GET", page))
		for _, match := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllSubmatch(html, -1) {
			address := string(match[1])
			if elsewhere[address] {
				continue
			}
			path, err := (&url.URL{Path: page}).Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := request(h, "GET", path.Path).StatusCode, http.StatusOK; got != want {
				t.Errorf("%s names %s: %d, want %d", page, address, got, want)
			}
		}
	}
}

// The modules of the console are preloaded, so that they do not load one after the other.
func TestPreload(t *testing.T) {
	html, err := files.ReadFile("assets/index.html")
	if err != nil {
		t.Fatal(err)
	}
	for file := range surface {
		name := strings.TrimPrefix(file, "/")
		if path.Ext(name) != ".js" || name == "docs/scalar.js" || name == "console/docs.js" || name == "console/app.js" {
			continue
		}
		if link := `<link rel="modulepreload" href="` + name + `">`; !strings.Contains(string(html), link) {
			t.Errorf("index.html lacks %s", link)
		}
	}
}

// The files of others are those that their README names, and the reference has what would contact others turned off.
func TestOthersFiles(t *testing.T) {
	module, err := files.ReadFile("preact/standalone.module.js")
	if err != nil {
		t.Fatal(err)
	}
	zr, err := gzip.NewReader(bytes.NewReader(scalarGzip))
	if err != nil {
		t.Fatal(err)
	}
	scalar, err := io.ReadAll(zr)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"preact": module, "scalar": scalar} {
		readme, err := os.ReadFile(name + "/README.md")
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); err != nil || !strings.Contains(string(readme), got) {
			t.Errorf("%s/README.md does not name the file's SHA-256 %s: %v", name, got, err)
		}
	}
	if most := 1_500_000; len(scalarGzip) > most {
		t.Errorf("the bundle is %d bytes, want at most %d", len(scalarGzip), most)
	}
	config, err := files.ReadFile("assets/docs.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []string{
		"proxyUrl: ''", "telemetry: false", "withDefaultFonts: false", "agent: { disabled: true }",
		"mcp: { disabled: true }", "hideClientButton: true",
	} {
		if !strings.Contains(string(config), off) {
			t.Errorf("docs.js lacks %q", off)
		}
	}
}
