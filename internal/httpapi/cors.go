package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Origins are the web pages that may use the service from a browser: none if it is empty, any if it is "*" alone.
// Browsers send no cookies or other ambient credentials: the service has none.
type Origins []string

// ParseOrigins parses --cors-origins: * for any, off for none, or origins separated by commas.
func ParseOrigins(text string) (Origins, error) {
	switch text {
	case "*":
		return Origins{"*"}, nil
	case "off", "":
		return nil, nil
	}
	var o Origins
	for origin := range strings.SplitSeq(text, ",") {
		origin = strings.TrimSpace(origin)
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return nil, fmt.Errorf("--cors-origins has %q: use origins such as https://docs.example, or * or off", origin)
		}
		o = append(o, origin)
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
	origin, h, allowed := r.Header.Get("Origin"), w.Header(), a.cfg.Origins
	switch {
	case len(allowed) == 0:
	case allowed[0] != "*":
		h.Add("Vary", "Origin")
	case origin != "":
		origin = "*"
	}
	if !slices.Contains(allowed, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	var methods string
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		_, pattern := a.mux.Handler(r)
		methods = a.methods[pattern] // "" for an unknown path
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
