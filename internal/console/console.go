// Package console serves the two pages that a person meets in a browser: the
// console, where the plants of one store are seen and changed, and the API
// reference, where every operation can be tried.
//
// Everything is embedded. Neither page asks an outside address for anything,
// sets a cookie or needs to be told where it is mounted: both use relative
// addresses only, so that a prefix, also one that a proxy in front has
// stripped, needs no configuration in the page.
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
	"strconv"
	"strings"
	"sync"
)

//go:embed assets
var assets embed.FS

// The bundle is kept compressed only: a quarter of the size in the repository
// and in the binary, and what nearly every client asks for anyway.
//
//go:embed scalar/standalone.js.gz
var scalarGzip []byte

// consolePolicy lets the console load and call its own origin and nothing else.
// Trusted Types make the browser refuse any text that is turned into markup or
// script, so a plant's name cannot become either.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// referencePolicy is for /docs alone. Its one exception is 'unsafe-inline' for
// styles: Scalar and the editor in it put style elements into the page and set
// style attributes whose values are computed, which no hash or nonce can name.
// Script stays strict: the bundle tries once whether eval is allowed, is refused,
// and goes on without. Fonts, frames, workers and other origins stay closed.
const referencePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; " +
	"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Routes returns the handler of each page and asset, keyed by the pattern under
// which it is mounted on an [http.ServeMux]. The prefix is the path where the
// API is mounted: "" or "/" for the root, otherwise such as "/api".
func Routes(prefix string) map[string]http.Handler {
	prefix = strings.TrimSuffix(prefix, "/")
	routes := map[string]http.Handler{
		"GET " + prefix + "/{$}":               embedded("index.html", consolePolicy),
		"GET " + prefix + "/console/app.js":    embedded("app.js", consolePolicy),
		"GET " + prefix + "/console/api.js":    embedded("api.js", consolePolicy),
		"GET " + prefix + "/console/chart.js":  embedded("chart.js", consolePolicy),
		"GET " + prefix + "/console/style.css": embedded("style.css", consolePolicy),
		"GET " + prefix + "/console/icon.svg":  embedded("icon.svg", consolePolicy),
		"GET " + prefix + "/docs":              embedded("docs.html", referencePolicy),
		"GET " + prefix + "/docs/docs.js":      embedded("docs.js", referencePolicy),
		"GET " + prefix + "/docs/docs.css":     embedded("docs.css", referencePolicy),
		"GET " + prefix + "/docs/scalar.js":    newAsset("scalar.js", referencePolicy, unpackOnce(scalarGzip), scalarGzip),
	}
	if prefix != "" {
		// Relative addresses on the page need the slash at the end.
		routes["GET "+prefix] = redirect(prefix + "/")
	}
	return routes
}

// asset is one file and what is said with it.
type asset struct {
	contentType string
	policy      string
	hash        string
	plain       func() []byte
	gzipped     []byte
}

// embedded returns a file of the package's own. A missing file is a mistake in
// this package and is found by every test that calls Routes.
func embedded(name, policy string) *asset {
	plain, err := assets.ReadFile("assets/" + name)
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

// unpackOnce is for the rare client without gzip: most processes never unpack. One that does keeps what it has,
// since anybody may ask, and as often as they like: to unpack takes far longer than to send.
func unpackOnce(gzipped []byte) func() []byte {
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

// contentType does not ask the machine's table of types, which may be missing
// or wrong: with nosniff a wrong type is a page that does not run.
func contentType(name string) string {
	switch ext := name[strings.LastIndexByte(name, '.')+1:]; ext {
	case "html":
		return "text/html; charset=utf-8"
	case "js":
		return "text/javascript; charset=utf-8"
	case "css":
		return "text/css; charset=utf-8"
	case "svg":
		return "image/svg+xml"
	default:
		panic(fmt.Sprintf("console: no content type for %q", name))
	}
}

func (a *asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	secure(h, a.policy)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}

	packed := acceptsGzip(r.Header.Values("Accept-Encoding"))
	etag := `"` + a.hash + `"`
	if packed {
		etag = `"` + a.hash + `-gzip"`
	}
	// One rule for all: keep it, ask each time whether it is still the same. A
	// new version of the binary is then seen at once, and an old one costs 304.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", etag)
	h.Set("Vary", "Accept-Encoding")
	if matches(r.Header.Values("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}

	h.Set("Content-Type", a.contentType)
	var body []byte
	if packed {
		h.Set("Content-Encoding", "gzip")
		body = a.gzipped
	} else {
		body = a.plain()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodHead {
		return
	}
	// A failed write means that the client has gone: nobody is left to tell.
	_, _ = w.Write(body)
}

// redirect sends to another path of the same server.
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

// acceptsGzip reports whether Accept-Encoding names gzip, or everything, with a
// weight that is not zero.
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

// matches reports whether If-None-Match names the tag. The comparison is the
// weak one, as RFC 9110 asks for this header.
func matches(values []string, etag string) bool {
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		item = strings.TrimPrefix(strings.TrimSpace(item), "W/")
		if item == etag || item == "*" {
			return true
		}
	}
	return false
}
