package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Origins are the web pages that may use the service from a browser. The zero value is none.
// Browsers send no cookies or other ambient credentials: the service has none.
type Origins struct {
	any  bool
	list []string
}

// ParseOrigins parses --cors-origins: * for any, off for none, or origins separated by commas.
func ParseOrigins(text string) (Origins, error) {
	switch text {
	case "*":
		return Origins{any: true}, nil
	case "off", "":
		return Origins{}, nil
	}
	var o Origins
	for origin := range strings.SplitSeq(text, ",") {
		origin = strings.TrimSpace(origin)
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return Origins{}, fmt.Errorf("--cors-origins has %q: use origins such as https://docs.example, or * or off", origin)
		}
		o.list = append(o.list, origin)
	}
	return o, nil
}

const (
	corsRequestHeaders  = "Authorization, Content-Type, If-Match, If-None-Match, Prefer, X-Request-Id"
	corsResponseHeaders = "ETag, Link, Plants-Count, Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, " +
		"WWW-Authenticate, X-Request-Id"
	corsMaxAge = "86400"
)

// cors sets the headers that let a page read the response. It reports whether they are the response to a preflight
// request, which has no credential.
func (a *API) cors(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	h := w.Header()
	if !a.cfg.Origins.any && len(a.cfg.Origins.list) > 0 {
		h.Add("Vary", "Origin")
	}
	if origin == "" || !a.cfg.Origins.any && !slices.Contains(a.cfg.Origins.list, origin) {
		return false
	}
	if a.cfg.Origins.any {
		origin = "*"
	}
	h.Set("Access-Control-Allow-Origin", origin)
	var methods string
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		methods = a.methodsOf(r)
	}
	if methods == "" {
		h.Set("Access-Control-Expose-Headers", corsResponseHeaders)
		return false
	}
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Allow-Headers", corsRequestHeaders)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	return true
}
