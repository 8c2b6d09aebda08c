package httpapi

import (
	"net/http"
	"net/http/httptest"
	"slices"
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
		"GET /openapi.json ", "GET /openapi.yaml ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Routes() = %q\nwant %q", got, want)
	}
}

// Every request is observed once, with its route whatever the prefix is.
func TestObserve(t *testing.T) {
	var seen []Request
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	empty := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	a, _ := newAPI(Config{Origins: Origins{"*"}}, Dependencies{
		Reader: ferns(), Prefix: "/v", Observe: func(r Request) { seen = append(seen, r) },
		Pages: map[string]http.Handler{"GET /v/console": page, "GET /v": empty},
	})
	for _, test := range []struct {
		method, target string
		want           Request
	}{
		{"GET", "/v/plants", Request{Route: "/plants", Status: 200}},
		{"GET", "/v/plants/x", Request{Route: "/plants/{id}", Status: 400, Number: 40025}},
		{"PATCH", "/v/plants", Request{Route: "/plants", Status: 405, Number: 40501}},
		{"BREW", "/v/console", Request{Route: "/console", Status: 405, Number: 40501}},
		{"GET", "/v/console", Request{Route: "/console", Status: 304}},
		{"GET", "/v", Request{Route: "/", Status: 200}},
		{"GET", "/plants", Request{Route: "unmatched", Status: 404, Number: 40402}},
		{"GET", "/v/../plants", Request{Route: "unmatched", Status: 404, Number: 40402}},
		{"OPTIONS", "/v/plants", Request{Route: "preflight", Status: 204}},
	} {
		seen = nil
		send(a, test.method, test.target, nil, "Origin", "https://other.example", "Access-Control-Request-Method", "GET")
		if len(seen) != 1 || seen[0].Context == nil || seen[0].Took <= 0 {
			t.Errorf("%s %s: observed %+v", test.method, test.target, seen)
			continue
		}
		got := seen[0]
		got.Context, got.Took = nil, test.want.Took
		if test.want.Method = test.method; got != test.want {
			t.Errorf("%s %s: observed %+v, want %+v", test.method, test.target, got, test.want)
		}
	}
}

func TestRouting(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("page")) })
	a, _ := newAPI(Config{}, Dependencies{
		Reader: ferns(), Prefix: "/v", DescriptionJSON: []byte("{}"), DescriptionYAML: []byte("a: 1"),
		Pages: map[string]http.Handler{"GET /v/console": page},
	})
	for _, test := range []struct {
		method, target string
		status         int
		body, allow    string
	}{
		{"GET", "/v/plants", 200, "[]", ""},
		{"GET", "/v/console", 200, "page", ""},
		{"GET", "/v/openapi.json", 200, "{}", ""},
		{"GET", "/v/openapi.yaml", 200, "a: 1", ""},
		{"GET", "/plants", 404, `{"error":40402,"message":"the path does not exist"}`, ""},
		{"GET", "/v/plants/", 404, `{"error":40402,"message":"the path does not exist"}`, ""},
		{"GET", "/v//plants", 404, `{"error":40402,"message":"the path does not exist"}`, ""},
		{"GET", "/v/./plants", 404, `{"error":40402,"message":"the path does not exist"}`, ""},
		{"GET", "/v/../plants", 404, `{"error":40402,"message":"the path does not exist"}`, ""},
		{"GET", "/v/plants/.", 404, `{"error":40402,"message":"the path does not exist"}`, ""},
		{"GET", "/v/plants/..", 404, `{"error":40402,"message":"the path does not exist"}`, ""},
		{"PATCH", "/v/plants", 405,
			`{"error":40501,"message":"the path does not support this method; use GET, HEAD, POST"}`,
			"GET, HEAD, POST"},
		{"POST", "/v/plants/1", 405,
			`{"error":40501,"message":"the path does not support this method; use DELETE, GET, HEAD, PUT"}`,
			"DELETE, GET, HEAD, PUT"},
		{"PUT", "/v/console", 405,
			`{"error":40501,"message":"the path does not support this method; use GET, HEAD"}`, "GET, HEAD"},
	} {
		w := send(a, test.method, test.target, nil)
		if w.Code != test.status || w.Body.String() != test.body {
			t.Errorf("%s %s: %d %s\nwant %d %s", test.method, test.target, w.Code, w.Body, test.status, test.body)
		}
		wantHeaders(t, w, "Allow", test.allow)
	}
	wantHeaders(t, send(a, "GET", "/v/openapi.yaml", nil), "Content-Type", "application/yaml", "Content-Length", "4")
}

// A request target such as * has no path of ours.
func TestAsteriskTarget(t *testing.T) {
	a, _ := newAPI(Config{}, Dependencies{})
	r := httptest.NewRequest("OPTIONS", "/", nil)
	r.URL.Path = "*"
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	wantError(t, w, 40402, "the path does not exist")
}

// HEAD has the headers of GET. net/http drops the body, so this needs a real server.
func TestHead(t *testing.T) {
	server := httptest.NewServer(newStoreAPI(ferns(1, 2)))
	defer server.Close()
	for _, target := range []string{"/plants?limit=1", "/plants/1", "/plants/3", "/openapi.json"} {
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
