package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// create is a function that creates a plant as any web page would.
const create = `(async (service, token, body) => {
	const headers = { Authorization: 'Bearer ' + token, 'Content-Type': 'application/json' };
	try {
		const response = await fetch(service + '/plants', { method: 'POST', headers, body });
		return { status: response.status, body: await response.text(), request: response.headers.get('X-Request-Id') ?? '' };
	} catch (e) {
		return { failure: String(e) };
	}
})`

// A page of another origin can use the API if the operator allows the origin, and otherwise reaches nothing.
func TestOtherOrigins(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "<!doctype html><title>elsewhere</title>")
	}))
	defer other.Close()
	allowed, refused := serve(t, "--cors-origins", other.URL), serve(t, "--cors-origins", "https://docs.example")
	p := newPage(t, "http://127.0.0.1:")
	p.accepts = "error: Access to fetch at '" + refused.URL
	p.goTo(strings.TrimPrefix(other.URL, p.base))
	type outcome struct {
		Status                 int
		Body, Request, Failure string
	}
	send := func(s *service, token, body string) outcome {
		t.Helper()
		return eval[outcome](p, create+"("+js(s.URL, token, body)+")")
	}
	got := send(allowed, allowed.Token, `{"id":1,"name":"Aloe"}`)
	if got.Status != 200 || got.Body != `{"name":"Aloe"}` || got.Request == "" {
		t.Errorf("the page got %+v, want 200, the plant and the request's id", got)
	}
	allowed.want(t, `{"id":1,"name":"Aloe"}`)
	got = send(allowed, mistyped(allowed.Token), `{"id":2,"name":"Fern"}`)
	if got.Status != 401 || !strings.Contains(got.Body, `"error":40103`) {
		t.Errorf("with a wrong token the page got %+v, want 401 and its reason", got)
	}
	if got := send(refused, refused.Token, `{"id":1,"name":"Aloe"}`); !strings.Contains(got.Failure, "Failed to fetch") {
		t.Errorf("the page got %+v, want a refusal by the browser", got)
	}
	refused.wantNone(t, "1")
}
