package httpapi

import (
	"slices"
	"testing"
)

func TestParseOrigins(t *testing.T) {
	for text, want := range map[string]Origins{
		"*": {"*"}, "off": {}, "": {}, "https://a.example": {"https://a.example"},
		"https://a.example , http://b:8080": {"https://a.example", "http://b:8080"},
	} {
		if got, err := ParseOrigins(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseOrigins(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{
		"a.example", "https://", "//a.example", "https://a.example/", "https://a.example/x", "https://a.example,", "*,*",
		"https://u@a.example", "https://a.example?x", "https://a.example#x", "https://%zz",
	} {
		if got, err := ParseOrigins(text); err == nil {
			t.Errorf("ParseOrigins(%q) = %v", text, got)
		}
	}
	const want = `--cors-origins has "a.example": use origins such as https://docs.example, or * or off`
	if _, err := ParseOrigins("a.example"); err.Error() != want {
		t.Errorf("ParseOrigins() = %v, want %s", err, want)
	}
}

const (
	exposed = "ETag, Link, Plants-Count, Preference-Applied, " +
		"RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id"
	requestHeaders = "Authorization, Content-Type, If-Match, If-None-Match, Prefer, X-Request-Id"
)

func TestCORS(t *testing.T) {
	const page = "https://docs.example"
	preflight := []string{"Origin", page, "Access-Control-Request-Method", "POST"}
	for _, test := range []struct {
		name, origins, method, target string
		headers                       []string
		status                        int
		allow, expose, methods, vary  string
	}{
		{"any origin", "*", "GET", "/plants", []string{"Origin", page}, 200, "*", exposed, "", ""},
		{"no origin", "*", "GET", "/plants", nil, 200, "", "", "", ""},
		{"a listed origin", "https://x.example," + page, "GET", "/plants", []string{"Origin", page},
			200, page, exposed, "", "Origin"},
		{"another origin", "https://x.example", "GET", "/plants", []string{"Origin", page}, 200, "", "", "", "Origin"},
		{"a listed origin in another case", "https://DOCS.example", "GET", "/plants", []string{"Origin", page},
			200, "", "", "", "Origin"},
		{"off", "off", "GET", "/plants", []string{"Origin", page}, 200, "", "", "", ""},
		{"an Error", "*", "GET", "/plants/x", []string{"Origin", page}, 400, "*", exposed, "", ""},
		{"a preflight", "*", "OPTIONS", "/plants", preflight, 204, "*", "", "GET, HEAD, POST", ""},
		{"a preflight of a listed origin", page, "OPTIONS", "/plants/1", preflight,
			204, page, "", "DELETE, GET, HEAD, PUT", "Origin"},
		{"a preflight of another origin", "https://x.example", "OPTIONS", "/plants", preflight, 405, "", "", "", "Origin"},
		{"a preflight of an unknown path", "*", "OPTIONS", "/nowhere", preflight, 404, "*", exposed, "", ""},
		{"OPTIONS without a method", "*", "OPTIONS", "/plants", preflight[:2], 405, "*", exposed, "", ""},
		{"OPTIONS without an origin", "*", "OPTIONS", "/plants", preflight[2:], 405, "", "", "", ""},
		{"a request with the header of a preflight", "*", "GET", "/plants", preflight, 200, "*", exposed, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			origins, err := ParseOrigins(test.origins)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := newAPI(Config{Origins: origins}, Dependencies{Reader: ferns()})
			w := send(a, test.method, test.target, nil, test.headers...)
			if w.Code != test.status {
				t.Errorf("status %d %s, want %d", w.Code, w.Body, test.status)
			}
			headers, age := "", ""
			if test.methods != "" {
				headers, age = requestHeaders, "86400"
			}
			wantHeaders(t, w, "Access-Control-Allow-Origin", test.allow, "Access-Control-Expose-Headers", test.expose,
				"Access-Control-Allow-Methods", test.methods, "Access-Control-Allow-Headers", headers,
				"Access-Control-Max-Age", age, "Vary", test.vary, "Access-Control-Allow-Credentials", "")
		})
	}
}
