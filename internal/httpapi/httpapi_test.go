package httpapi

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestRoutes(t *testing.T) {
	var got []string
	for _, r := range Routes() {
		got = append(got, r.Method+" "+r.Path+" "+r.Scope.String())
	}
	want := []string{
		"POST /plants plants:create", "GET /plants plants:read", "GET /plants/{id} plants:read",
		"PUT /plants/{id} plants:write", "DELETE /plants/{id} plants:write", "GET /token ",
		"POST /webhooks webhooks:manage", "GET /webhooks webhooks:manage", "GET /webhooks/{id} webhooks:manage",
		"PUT /webhooks/{id} webhooks:manage", "DELETE /webhooks/{id} webhooks:manage",
		"POST /webhooks/{id}/rotate webhooks:manage", "GET /webhooks/{id}/deliveries webhooks:manage",
		"POST /webhooks/{id}/deliveries/{delivery}/replay webhooks:manage", "POST /webhooks/{id}/replay webhooks:manage",
		"GET /webhooks/{id}/pull webhooks:manage", "POST /webhooks/{id}/ack webhooks:manage",
		"POST /sandboxes ", "DELETE /sandbox ", "POST /sandbox/reset ", "GET /faults ", "PUT /faults ", "DELETE /faults ",
		"GET /requests ", "DELETE /requests ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Routes() = %q\nwant %q", got, want)
	}
}

// Every request has its response and is observed once, with its route whatever the prefix is.
func TestRouting(t *testing.T) {
	var seen []Request
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("page")) })
	empty := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	a, _ := newAPI(Config{Origins: Origins{"*"}}, Dependencies{
		Reader: ferns(), Prefix: "/v",
		Pages:   map[string]http.Handler{"GET /v/console": page, "GET /v": empty},
		Observe: func(r Request) { seen = append(seen, r) },
	})
	const none = "the path does not exist"
	for _, test := range []struct {
		method, target, route string
		status                int
		body, allow           string // the body is a message if number is not 0
		number                int
	}{
		{"GET", "/v/plants", "/plants", 200, "[]", "", 0},
		{"GET", "/v/plants/01", "/plants/{id}", 400, "id in the path " + mustBeInt64 + `, but is "01"`, "", 40025},
		{"GET", "/v/console", "/console", 200, "page", "", 0},
		{"GET", "/v", "/", 200, "", "", 0},
		{"GET", "/v/console?x", "/console", 200, "page", "", 0},
		{"OPTIONS", "/v/plants", "preflight", 204, "", "", 0},
		{"GET", "/plants", "unmatched", 404, none, "", 40402},
		{"GET", "/v/plants/", "unmatched", 404, none, "", 40402},
		{"GET", "/v//plants", "unmatched", 404, none, "", 40402},
		{"GET", "/v/./plants", "unmatched", 404, none, "", 40402},
		{"GET", "/v/../plants", "unmatched", 404, none, "", 40402},
		{"GET", "/v/plants/.", "unmatched", 404, none, "", 40402},
		{"GET", "/v/plants/..", "unmatched", 404, none, "", 40402},
		{"OPTIONS", "*", "unmatched", 404, none, "", 40402},
		{"PATCH", "/v/plants", "/plants", 405, "the path does not support this method; use GET, HEAD, POST",
			"GET, HEAD, POST", 40501},
		{"POST", "/v/plants/1", "/plants/{id}", 405, "the path does not support this method; use DELETE, GET, HEAD, PUT",
			"DELETE, GET, HEAD, PUT", 40501},
		{"BREW", "/v/console", "/console", 405, "the path does not support this method; use GET, HEAD", "GET, HEAD", 40501},
	} {
		seen = nil
		w := send(a, test.method, test.target, nil, "Origin", "https://x.example", "Access-Control-Request-Method", "GET")
		body := test.body
		if test.number != 0 {
			body = string(appendError(nil, int32(test.number), test.body, ""))
		}
		got := strings.Replace(w.Body.String(), `,"field":"id"}`, "}", 1) // TestField checks it
		if w.Code != test.status || got != body || w.Header().Get("X-Request-Id") == "" {
			t.Errorf("%s %s: %d %s\nwant %d %s", test.method, test.target, w.Code, w.Body, test.status, body)
		}
		wantHeaders(t, w, "Allow", test.allow)
		if len(seen) != 1 || seen[0].Context == nil || seen[0].Took <= 0 {
			t.Errorf("%s %s: observed %+v", test.method, test.target, seen)
			continue
		}
		seen[0].Context, seen[0].Took = nil, 0
		want := Request{Route: test.route, Method: test.method, Status: test.status, Number: int32(test.number)}
		if seen[0] != want {
			t.Errorf("%s %s: observed %+v, want %+v", test.method, test.target, seen[0], want)
		}
	}
}

// HEAD has the headers of GET. net/http drops the body, so this needs a real server.
func TestHead(t *testing.T) {
	server := httptest.NewServer(newStorageAPI(ferns(1, 2)))
	defer server.Close()
	for _, target := range []string{"/plants?limit=1", "/plants/1", "/plants/3"} {
		get, err := http.Get(server.URL + target)
		if err != nil {
			t.Fatal(err)
		}
		get.Body.Close()
		head, err := http.Head(server.URL + target)
		if err != nil {
			t.Fatal(err)
		}
		head.Body.Close()
		if head.StatusCode != get.StatusCode || head.ContentLength != get.ContentLength {
			t.Errorf("HEAD %s: %d with %d bytes, GET %d with %d", target,
				head.StatusCode, head.ContentLength, get.StatusCode, get.ContentLength)
		}
		for _, name := range []string{"ETag", "Link", "Content-Type"} {
			if head.Header.Get(name) != get.Header.Get(name) {
				t.Errorf("HEAD %s: %s %q, GET %q", target, name, head.Header.Get(name), get.Header.Get(name))
			}
		}
	}
}
