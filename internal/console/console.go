// Package console serves the two pages for browsers: the console, which displays
// and edits the plants of one store, and the API reference, which can send every
// request.
//
// Everything is embedded. Neither page loads anything from another host or sets a
// cookie. Both use relative URLs only, so they need no configuration to run under
// a prefix, even if a proxy strips it.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed assets preact/standalone.module.js
var files embed.FS

// scalarGzip is the JavaScript of the API reference. It is embedded compressed only,
// which is a quarter of the size and what nearly every client requests.
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

// Routes returns the handler of each page and asset, keyed by the pattern under
// which it is mounted on an [http.ServeMux]. The prefix is the path where the
// API is mounted: "" or "/" for the root, otherwise such as "/api".
func Routes(prefix string) map[string]http.Handler {
	prefix = strings.TrimSuffix(prefix, "/")
	routes := map[string]http.Handler{
		"GET " + prefix + "/{$}":               embedded("assets/index.html", consolePolicy),
		"GET " + prefix + "/docs":              embedded("assets/docs.html", referencePolicy),
		"GET " + prefix + "/console/preact.js": embedded("preact/standalone.module.js", consolePolicy),
		"GET " + prefix + "/docs/scalar.js": newAsset("scalar.js", referencePolicy,
			decompressOnce(scalarGzip), scalarGzip),
	}
	scripts, _ := files.ReadDir("assets") // embedded: it cannot fail
	for _, file := range scripts {
		if name := file.Name(); !strings.HasSuffix(name, ".html") {
			routes["GET "+prefix+"/console/"+name] = embedded("assets/"+name, consolePolicy)
		}
	}
	if prefix != "" {
		// The relative URLs of the page need the trailing slash.
		routes["GET "+prefix] = redirect(prefix + "/")
	}
	return routes
}

// asset is one file with its headers, plain and compressed.
type asset struct {
	contentType string
	policy      string
	hash        string
	plain       func() []byte
	gzipped     []byte
}

// embedded returns an embedded file. It panics if the file is missing,
// which every test that calls Routes detects.
func embedded(name, policy string) *asset {
	plain, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	var packed bytes.Buffer
	zw, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // fails only for an unknown level
	if _, err := zw.Write(plain); err != nil {
		panic(err)
	}
	if err := zw.Close(); err != nil {
		panic(err)
	}
	return newAsset(name, policy, func() []byte { return plain }, packed.Bytes())
}

// decompressOnce returns a function that decompresses on its first call, since few
// clients do without gzip. The result is kept: decompressing takes far longer than
// sending, and any client may request it any number of times.
func decompressOnce(gzipped []byte) func() []byte {
	return sync.OnceValue(func() []byte {
		zr, err := gzip.NewReader(bytes.NewReader(gzipped))
		if err != nil {
			panic(err)
		}
		plain, err := io.ReadAll(zr)
		if err != nil {
			panic(err)
		}
		return plain
	})
}

func newAsset(name, policy string, plain func() []byte, gzipped []byte) *asset {
	sum := sha256.Sum256(gzipped)
	return &asset{
		contentType: contentType(name),
		policy:      policy,
		hash:        hex.EncodeToString(sum[:12]),
		plain:       plain,
		gzipped:     gzipped,
	}
}

// contentType returns the media type of a file. The table of the operating system
// may be missing or wrong, and with nosniff a wrong type breaks the page.
func contentType(name string) string {
	types := map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	}
	if types[path.Ext(name)] == "" {
		panic(fmt.Sprintf("console: no content type for %q", name))
	}
	return types[path.Ext(name)]
}

func (a *asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	secure(h, a.policy)
	gzipped := acceptsGzip(r.Header.Values("Accept-Encoding"))
	etag := `"` + a.hash + `"`
	if gzipped {
		etag = `"` + a.hash + `-gzip"`
	}
	// Clients may cache a file but must revalidate it, so that a new version of
	// the program is used at once.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", etag)
	h.Set("Vary", "Accept-Encoding")
	// The ETag is a quoted hash, so finding it anywhere in the header is a match:
	// alone, in a list or weakened by a proxy.
	if known := strings.Join(r.Header.Values("If-None-Match"), ","); known == "*" || strings.Contains(known, etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}

	h.Set("Content-Type", a.contentType)
	var body []byte
	if gzipped {
		h.Set("Content-Encoding", "gzip")
		body = a.gzipped
	} else {
		body = a.plain()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client has disconnected
}

// redirect redirects to another path of the same server.
func redirect(to string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header(), consolePolicy)
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusPermanentRedirect)
	})
}

func secure(h http.Header, policy string) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
}

// acceptsGzip reports whether Accept-Encoding allows gzip, by name or with *.
func acceptsGzip(values []string) bool {
	any := false
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		coding, params, _ := strings.Cut(item, ";")
		accepted := true
		if name, q, ok := strings.Cut(params, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
			weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			accepted = err == nil && weight > 0
		}
		switch strings.ToLower(strings.TrimSpace(coding)) {
		case "gzip":
			return accepted
		case "*":
			any = accepted
		}
	}
	return any
}
