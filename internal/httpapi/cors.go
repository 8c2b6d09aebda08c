package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Origins says which web pages may use the service from a browser. The zero value: none.
// No page ever gets cookies or other ambient credentials sent along: there are none.
type Origins struct {
	any  bool
	list []string
}

// ParseOrigins reads --cors-origins: * for any, off for none, or origins separated by commas.
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
			return Origins{}, fmt.Errorf("the origin is %q: expected one such as https://docs.example, or * or off", origin)
		}
		o.list = append(o.list, origin)
	}
	return o, nil
}

const (
	corsRequestHeaders  = "Authorization, Content-Type, If-Match, If-None-Match, Prefer, X-Request-Id"
	corsResponseHeaders = "ETag, Link, Plants-Count, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id"
	corsMaxAge          = "86400"
)

// cors answers preflights, before any credential is asked for, and tells the browser what a page
// may read of the other answers. It reports whether the request is answered.
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
	w.WriteHeader(http.StatusNoContent)
	return true
}
