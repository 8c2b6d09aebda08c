package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// elsewhere is a page of another origin that creates a plant as any web page would.
const elsewhere = `<!doctype html><title>elsewhere</title><script>
async function create(service, token, body) {
	try {
		const response = await fetch(service + '/plants', {
			method: 'POST',
			headers: { Authorization: 'Bearer ' + token, 'Content-Type': 'application/json' },
			body,
		});
		return { status: response.status, body: await response.text(), request: response.headers.get('X-Request-Id') ?? '' };
	} catch (e) {
		return { failure: String(e) };
	}
}
</script>`

func TestOtherOrigins(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, elsewhere)
	}))
	defer other.Close()
	type outcome struct {
		Status                 int
		Body, Request, Failure string
	}
	for _, tt := range []struct {
		origins string
		allowed bool
	}{
		{"*", true},
		{other.URL, true},
		{"https://docs.example", false},
		{"off", false},
	} {
		name := tt.origins
		if name == other.URL {
			name = "its own"
		}
		t.Run(name, func(t *testing.T) {
			s := serve(t, "--cors-origins", tt.origins)
			p := newPage(t)
			p.goTo(other.URL)
			got := eval[outcome](p, "create("+js(s.URL, s.Token, `{"id":1,"name":"Aloe"}`)+")")
			if !tt.allowed {
				if !strings.Contains(got.Failure, "Failed to fetch") {
					t.Errorf("the page got %+v, want a refusal by the browser", got)
				}
				s.want(t, "1", 404, "")
				return
			}
			if got.Status != 200 || got.Body != `{"name":"Aloe"}` || got.Request == "" {
				t.Errorf("the page got %+v, want 200, the plant and the request's id", got)
			}
			s.want(t, "1", 200, `{"id":1,"name":"Aloe"}`)
			got = eval[outcome](p, "create("+js(s.URL, mistyped(s.Token), `{"id":2,"name":"Fern"}`)+")")
			if got.Status != 401 || !strings.Contains(got.Body, `"error":40103`) {
				t.Errorf("with a wrong token the page got %+v, want 401 and its reason", got)
			}
		})
	}
}

func TestSecurityHeaders(t *testing.T) {
	s := serve(t)
	const common = "default-src 'none'; script-src 'self'; style-src 'self'%s; connect-src 'self'; " +
		"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	for path, policy := range map[string]string{
		"/":               fmt.Sprintf(common, "") + "; require-trusted-types-for 'script'; trusted-types 'none'",
		"/console/app.js": fmt.Sprintf(common, "") + "; require-trusted-types-for 'script'; trusted-types 'none'",
		"/docs":           fmt.Sprintf(common, " 'unsafe-inline'"),
	} {
		response, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		for name, want := range map[string]string{
			"Content-Security-Policy": policy,
			"X-Content-Type-Options":  "nosniff",
			"Referrer-Policy":         "no-referrer",
			"Set-Cookie":              "",
		} {
			if got := strings.Join(response.Header.Values(name), ", "); got != want || response.StatusCode != 200 {
				t.Errorf("GET %s = %d, %s: %q, want %q", path, response.StatusCode, name, got, want)
			}
		}
	}
}
