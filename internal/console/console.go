// Package console serves the pages for browsers: the console, which displays
// and edits the plants of one store, the API reference, which can send every
// request, and two pages of text that the description refers to.
//
// Everything is embedded. No page loads anything from another host or sets a
// cookie. All use relative URLs only, so they need no configuration to run under
// a prefix, even if a proxy strips it.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed assets preact/standalone.module.js
var files embed.FS

// scalarGzip is the JavaScript of the API reference. It is embedded and sent compressed only, a quarter of its size,
// since every browser accepts gzip. The other files are too small for a difference.
//
//go:embed scalar/standalone.js.gz
var scalarGzip []byte

// consolePolicy allows the console to use its own origin only. With Trusted Types
// the browser refuses to turn any text into markup or script, so the name of a
// plant cannot become either.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// referencePolicy is for /docs. Its one exception is 'unsafe-inline' for styles:
// Scalar and its editor add style elements and computed style attributes, which no
// hash or nonce can cover. Scripts stay strict: the bundle tests whether eval is
// allowed and works without it. Fonts, frames, workers and other origins are
// forbidden.
const referencePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// textPolicy is for pages without a script.
const textPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'"

// Routes returns the handler of each page and asset, keyed by the pattern under
// which it is mounted on an [http.ServeMux]. The prefix is the path where the
// API is mounted: "" for the root, otherwise such as "/api". With sandbox, the
// console and the reference offer a sandbox to visitors without a token.
func Routes(prefix string, sandbox bool) map[string]http.Handler {
	routes := map[string]http.Handler{
		"GET " + prefix + "/{$}":               document("assets/index.html", consolePolicy, sandbox),
		"GET " + prefix + "/docs":              document("assets/docs.html", referencePolicy, sandbox),
		"GET " + prefix + "/console/preact.js": embedded("preact/standalone.module.js", consolePolicy),
		"GET " + prefix + "/docs/errors":       embedded("assets/errors.html", textPolicy),
		"GET " + prefix + "/docs/bodies":       embedded("assets/bodies.html", textPolicy),
		"GET " + prefix + "/docs/scalar.js":    newAsset("scalar.js", referencePolicy, scalarGzip, "gzip"),
	}
	scripts, _ := files.ReadDir("assets") // embedded: it cannot fail
	for _, file := range scripts {
		if name := file.Name(); !strings.HasSuffix(name, ".html") {
			routes["GET "+prefix+"/console/"+name] = embedded("assets/"+name, consolePolicy)
		}
	}
	if prefix != "" {
		// The relative URLs of the page need the trailing slash.
		routes["GET "+prefix] = http.RedirectHandler(prefix+"/", http.StatusPermanentRedirect)
	}
	return routes
}

// asset is one file with the headers of its responses.
type asset struct {
	policy, etag, contentType, encoding string
	content                             []byte
}

// document returns an embedded HTML file, which tells its scripts whether the server has sandboxes.
func document(name, policy string, sandbox bool) *asset {
	content := read(name)
	if sandbox {
		content = bytes.Replace(content, []byte("<title>"), []byte("<meta name=\"sandbox\" content=\"on\">\n<title>"), 1)
	}
	return newAsset(name, policy, content, "")
}

func embedded(name, policy string) *asset { return newAsset(name, policy, read(name), "") }

// read returns an embedded file. It panics if the file is missing, which every test that calls Routes detects.
func read(name string) []byte {
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return content
}

func newAsset(name, policy string, content []byte, encoding string) *asset {
	sum := sha256.Sum256(content)
	return &asset{policy, `"` + hex.EncodeToString(sum[:12]) + `"`, contentTypes[path.Ext(name)], encoding, content}
}

// contentTypes has the media type of each kind of file. The table of the operating
// system may be missing or wrong, and with nosniff a wrong type breaks the page.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

func (a *asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", a.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	// Clients may cache a file but must revalidate it, so that a new version of
	// the program is used at once.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	// The ETag is a quoted hash, so finding it anywhere in the header is a match:
	// alone, in a list or weakened by a proxy.
	known := strings.Join(r.Header.Values("If-None-Match"), ",")
	if known == "*" || strings.Contains(known, a.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", a.contentType)
	if a.encoding != "" {
		h.Set("Content-Encoding", a.encoding)
	}
	h.Set("Content-Length", strconv.Itoa(len(a.content)))
	_, _ = w.Write(a.content) // an error means that the client has disconnected
}
