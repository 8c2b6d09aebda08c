package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
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
	for pattern, handler := range Routes(prefix) {
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

var surface = func() []struct{ path, contentType string } {
	all := []struct{ path, contentType string }{
		{"/", "text/html; charset=utf-8"},
		{"/docs", "text/html; charset=utf-8"},
		{"/docs/scalar.js", "text/javascript; charset=utf-8"},
		{"/console/preact.js", "text/javascript; charset=utf-8"},
	}
	types := map[string]string{
		".js":  "text/javascript; charset=utf-8",
		".css": "text/css; charset=utf-8",
		".svg": "image/svg+xml",
	}
	entries, err := os.ReadDir("assets")
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		if mediaType := types[path.Ext(entry.Name())]; mediaType != "" {
			all = append(all, struct{ path, contentType string }{"/console/" + entry.Name(), mediaType})
		}
	}
	return all
}()

func TestRoutes(t *testing.T) {
	for _, prefix := range []string{"", "/", "/some/where/"} {
		h := mounted(t, prefix)
		for _, page := range surface {
			path := strings.TrimSuffix(prefix, "/") + page.path
			res := request(h, "HEAD", path)
			if got, want := res.StatusCode, http.StatusOK; got != want {
				t.Errorf("HEAD %s = %d, want %d", path, got, want)
			}
			if got, want := res.Header.Get("Content-Type"), page.contentType; got != want {
				t.Errorf("HEAD %s: Content-Type %q, want %q", path, got, want)
			}
		}
		extra := 0
		if strings.Trim(prefix, "/") != "" {
			extra = 1 // the redirect to the trailing slash
		}
		if got, want := len(Routes(prefix)), len(surface)+extra; got != want {
			t.Errorf("Routes(%q) has %d routes, want %d", prefix, got, want)
		}
	}
}

func TestPrefixWithoutSlash(t *testing.T) {
	res := request(mounted(t, "/api"), "GET", "/api")
	if got, want := res.StatusCode, http.StatusPermanentRedirect; got != want {
		t.Errorf("GET /api = %d, want %d", got, want)
	}
	if got, want := res.Header.Get("Location"), "/api/"; got != want {
		t.Errorf("Location %q, want %q", got, want)
	}
}

func TestSecurityHeaders(t *testing.T) {
	h := mounted(t, "/api")
	common := []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "img-src 'self' data:",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"}
	paths := []string{"/api"}
	for _, page := range surface {
		paths = append(paths, "/api"+page.path)
	}
	for _, path := range paths {
		for _, header := range [][]string{nil, {"Accept-Encoding", "gzip"}, {"If-None-Match", "*"}} {
			res := request(h, "HEAD", path, header...)
			directives := strings.Split(res.Header.Get("Content-Security-Policy"), "; ")
			want := append([]string{"style-src 'self'", "require-trusted-types-for 'script'", "trusted-types 'none'"}, common...)
			if path == "/api/docs" || path == "/api/docs/scalar.js" {
				want = append([]string{"style-src 'self' 'unsafe-inline'"}, common...)
			}
			if !sameSet(directives, want) {
				t.Errorf("HEAD %s: policy %q, want %q", path, directives, want)
			}
			if got, want := res.Header.Get("X-Content-Type-Options"), "nosniff"; got != want {
				t.Errorf("HEAD %s: X-Content-Type-Options %q, want %q", path, got, want)
			}
			if got, want := res.Header.Get("Referrer-Policy"), "no-referrer"; got != want {
				t.Errorf("HEAD %s: Referrer-Policy %q, want %q", path, got, want)
			}
			if got := res.Header.Values("Set-Cookie"); len(got) > 0 {
				t.Errorf("HEAD %s sets cookies: %q", path, got)
			}
		}
	}
}

func sameSet(a, b []string) bool {
	set := map[string]int{}
	for _, s := range a {
		set[s]++
	}
	for _, s := range b {
		set[s]--
	}
	for _, n := range set {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestMethods(t *testing.T) {
	for pattern, h := range Routes("") {
		path := strings.TrimSuffix(strings.TrimPrefix(pattern, "GET "), "{$}")
		get, head := request(h, "GET", path), request(h, "HEAD", path)
		if got, want := head.StatusCode, http.StatusOK; got != want {
			t.Errorf("HEAD %s = %d, want %d", path, got, want)
		}
		for name := range get.Header {
			if got, want := head.Header.Get(name), get.Header.Get(name); got != want {
				t.Errorf("HEAD %s: %s %q, want %q", path, name, got, want)
			}
		}
	}
}

func TestEncodings(t *testing.T) {
	h := mounted(t, "")
	for _, page := range surface {
		plain := request(h, "GET", page.path)
		gzipped := request(h, "GET", page.path, "Accept-Encoding", "br, gzip;q=0.5")
		for _, res := range []*http.Response{plain, gzipped} {
			if got, want := res.Header.Get("Vary"), "Accept-Encoding"; got != want {
				t.Errorf("GET %s: Vary %q, want %q", page.path, got, want)
			}
		}
		if got := plain.Header.Get("Content-Encoding"); got != "" {
			t.Errorf("GET %s without Accept-Encoding: Content-Encoding %q, want none", page.path, got)
		}
		if got, want := gzipped.Header.Get("Content-Encoding"), "gzip"; got != want {
			t.Errorf("GET %s with gzip: Content-Encoding %q, want %q", page.path, got, want)
		}
		raw := body(t, gzipped)
		if got, want := gzipped.Header.Get("Content-Length"), strconv.Itoa(len(raw)); got != want {
			t.Errorf("GET %s with gzip: Content-Length %s, want %s", page.path, got, want)
		}
		zr, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("GET %s with gzip: %v", page.path, err)
		}
		decompressed, err := io.ReadAll(zr)
		if err != nil {
			t.Fatalf("GET %s with gzip: %v", page.path, err)
		}
		if !bytes.Equal(decompressed, body(t, plain)) {
			t.Errorf("GET %s: the plain and the compressed body differ", page.path)
		}
		if plain.Header.Get("ETag") == gzipped.Header.Get("ETag") {
			t.Errorf("GET %s: the plain and the compressed body have the same ETag", page.path)
		}
	}
}

// addresses is a ResponseWriter that records the memory address of each write.
type addresses struct {
	http.ResponseWriter
	writes []*byte
}

func (a *addresses) Write(b []byte) (int, error) {
	a.writes = append(a.writes, &b[0])
	return len(b), nil
}

// The bundle is decompressed once, however often it is requested without gzip.
func TestDecompressedOnce(t *testing.T) {
	h := mounted(t, "")
	var first *byte
	for _, header := range []string{"", "", "bytes=0-0", "bytes=1-1,3-3"} {
		r := httptest.NewRequest("GET", "/docs/scalar.js", nil)
		if header != "" {
			r.Header.Set("Range", header)
		}
		w := &addresses{ResponseWriter: httptest.NewRecorder()}
		h.ServeHTTP(w, r)
		if len(w.writes) != 1 {
			t.Fatalf("GET /docs/scalar.js with Range %q was written in %d parts, want 1", header, len(w.writes))
		}
		if first == nil {
			first = w.writes[0]
		}
		if w.writes[0] != first {
			t.Errorf("GET /docs/scalar.js with Range %q decompressed the bundle again", header)
		}
	}
}

func TestAcceptsGzip(t *testing.T) {
	for _, tt := range []struct {
		header string
		want   bool
	}{
		{"", false},
		{"gzip", true},
		{"GZIP", true},
		{"br", false},
		{"identity", false},
		{"deflate, gzip;q=1.0, *;q=0.5", true},
		{"gzip;q=0", false},
		{"gzip; q=0.000", false},
		{"gzip;q=0, *", false},
		{"*", true},
		{"*;q=0", false},
		{"*;q=0, gzip", true},
		{"gzip;q=nonsense", false},
		{"x-gzip-like", false},
		{"gzip;q=0.001", true},
		{"gzip;q=1;x=0", false},
		{"br;q=0, *;q=0.1", true},
		{"gzip;level=0", true},
		{"*;q=0, br", false},
	} {
		if got := acceptsGzip([]string{tt.header}); got != tt.want {
			t.Errorf("acceptsGzip(%q) = %t, want %t", tt.header, got, tt.want)
		}
	}
}

func TestETag(t *testing.T) {
	h := mounted(t, "")
	seen := map[string]string{}
	for _, page := range surface {
		first := request(h, "HEAD", page.path)
		etag := first.Header.Get("ETag")
		if !regexp.MustCompile(`^"[0-9a-f]{24}"$`).MatchString(etag) {
			t.Errorf("GET %s: ETag %q", page.path, etag)
		}
		if other, ok := seen[etag]; ok {
			t.Errorf("%s and %s have the same ETag", page.path, other)
		}
		seen[etag] = page.path
		if got, want := first.Header.Get("Cache-Control"), "no-cache"; got != want {
			t.Errorf("GET %s: Cache-Control %q, want %q", page.path, got, want)
		}
		for _, header := range []string{etag, "W/" + etag, `"other", ` + etag, "*"} {
			res := request(h, "GET", page.path, "If-None-Match", header)
			if got, want := res.StatusCode, http.StatusNotModified; got != want {
				t.Errorf("GET %s with If-None-Match %s = %d, want %d", page.path, header, got, want)
			}
			if got := body(t, res); len(got) > 0 {
				t.Errorf("GET %s with If-None-Match %s: %d bytes of body, want none", page.path, header, len(got))
			}
			if got := res.Header.Get("ETag"); got != etag {
				t.Errorf("GET %s with If-None-Match %s: ETag %s, want %s", page.path, header, got, etag)
			}
		}
		res := request(h, "HEAD", page.path, "If-None-Match", `"other"`)
		if got, want := res.StatusCode, http.StatusOK; got != want {
			t.Errorf("GET %s with another ETag = %d, want %d", page.path, got, want)
		}
		if res := request(h, "HEAD", page.path, "If-None-Match", etag, "Accept-Encoding", "gzip"); res.StatusCode != 200 {
			t.Errorf("GET %s with gzip and the plain ETag = %d, want 200", page.path, res.StatusCode)
		}
	}
}

// The pages are small, use no other host, contain nothing inline that the policy
// would refuse, and never turn text into markup.
func TestOwnFiles(t *testing.T) {
	const most = 128 << 10
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

// Every URL in a page has a route.
func TestLinks(t *testing.T) {
	h := mounted(t, "/api")
	elsewhere := map[string]bool{"openapi.json": true} // served by the API
	for _, page := range []string{"/api/", "/api/docs"} {
		html := body(t, request(h, "GET", page))
		for _, match := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllSubmatch(html, -1) {
			address := string(match[1])
			if elsewhere[address] {
				continue
			}
			path := "/api/" + strings.TrimPrefix(address, "./")
			if got, want := request(h, "GET", path).StatusCode, http.StatusOK; got != want {
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
	for _, page := range surface {
		name := strings.TrimPrefix(page.path, "/")
		if path.Ext(name) != ".js" || name == "docs/scalar.js" || name == "console/docs.js" || name == "console/app.js" {
			continue
		}
		if link := `<link rel="modulepreload" href="` + name + `">`; !strings.Contains(string(html), link) {
			t.Errorf("index.html lacks %s", link)
		}
	}
}

func TestPreact(t *testing.T) {
	module, err := files.ReadFile("preact/standalone.module.js")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("preact/README.md")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(module)
	if got := hex.EncodeToString(sum[:]); !strings.Contains(string(readme), got) {
		t.Errorf("preact/README.md does not name the module's SHA-256 %s", got)
	}
}

func TestBundle(t *testing.T) {
	const most = 1_500_000
	if len(scalarGzip) > most {
		t.Errorf("the bundle is %d bytes, want at most %d", len(scalarGzip), most)
	}
	zr, err := gzip.NewReader(bytes.NewReader(scalarGzip))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, zr); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("scalar/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.Contains(string(readme), got) {
		t.Errorf("scalar/README.md does not name the bundle's SHA-256 %s", got)
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
