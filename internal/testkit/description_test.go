package testkit

import (
	"net/http"
	"testing"
)

// The description detects wrong responses and requests.
func TestDescription(t *testing.T) {
	create, _ := http.NewRequest("POST", "http://plants.example/plants", nil)
	read, _ := http.NewRequest("GET", "http://plants.example/plants/9223372036854775807", nil)
	list, _ := http.NewRequest("GET", "http://plants.example/plants", nil)
	remove, _ := http.NewRequest("DELETE", "http://plants.example/plants/1", nil)
	page, _ := http.NewRequest("GET", "http://plants.example/openapi.yaml", nil)
	json := http.Header{"Content-Type": {"application/json"}}
	for _, test := range []struct {
		what string
		r    *http.Request
		a    Response
		ok   bool
	}{
		{"created", create, Response{200, json, `{"name":"x"}`}, true},
		{"no name", create, Response{200, json, `{"tag":"x"}`}, false},
		{"a name that is a number", create, Response{200, json, `{"name":1}`}, false},
		{"an Error", create, Response{400, json, `{"error":40001,"message":"x"}`}, true},
		{"an Error without a message", create, Response{400, json, `{"error":40001}`}, false},
		{"an unknown status", create, Response{201, json, `{"name":"x"}`}, false},
		{"another content type", create, Response{200, http.Header{"Content-Type": {"text/plain"}}, `x`}, false},
		{"no content type", create, Response{200, nil, `{"name":"x"}`}, false},
		{"no JSON", create, Response{200, json, `{"name":"x"`}, false},
		{"no body", create, Response{200, json, ``}, false},
		{"the largest id", read, Response{200, json, `{"id":9223372036854775807,"name":"x"}`}, true},
		{"an id that is too large", read, Response{200, json, `{"id":9223372036854775808,"name":"x"}`}, false},
		{"no id", read, Response{200, json, `{"name":"x"}`}, false},
		{"a page", list, Response{200, json, `[{"id":1,"name":"x"}]`}, true},
		{"a page of wrong plants", list, Response{200, json, `[{"id":1,"name":"x"},{"id":2}]`}, false},
		{"a wrong header", list,
			Response{200, http.Header{"Content-Type": json["Content-Type"], "Plants-Count": {"x"}}, `[]`}, false},
		{"removed", remove, Response{204, nil, ``}, true},
		{"removed, with a body", remove, Response{204, json, `{}`}, false},
		{"a text", page, Response{200, http.Header{"Content-Type": {"application/yaml"}}, "openapi: 3.1.0"}, true},
	} {
		op, err := description().operation(test.r)
		if err != nil {
			t.Fatal(err)
		}
		if err := op.response(test.a); (err == nil) != test.ok {
			t.Errorf("%s: %v, want it allowed: %v", test.what, err, test.ok)
		}
	}
	for path, method := range map[string]string{"/plants/1/2": "GET", "/plants/": "GET", "/": "GET", "/plants/1": "POST"} {
		r, _ := http.NewRequest(method, "http://plants.example"+path, nil)
		if _, err := description().operation(r); err == nil {
			t.Errorf("%s %s is described", method, path)
		}
	}
}

func TestDescriptionOfRequests(t *testing.T) {
	json := http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Authorization": {"Bearer x"}}
	for _, test := range []struct {
		what, method, path, body string
		header                   http.Header
		ok                       bool
	}{
		{"a create", "POST", "/plants", `{"id":1,"name":"x"}`, json, true},
		{"no name", "POST", "/plants", `{"id":1}`, json, false},
		{"no credential", "POST", "/plants", `{"id":1,"name":"x"}`, nil, false},
		{"another content type", "POST", "/plants", `{"id":1,"name":"x"}`,
			http.Header{"Content-Type": {"text/plain"}, "Authorization": {"Bearer x"}}, false},
		{"a replace", "PUT", "/plants/1", `{"name":"x"}`, json, true},
		{"an id that is no number", "PUT", "/plants/x", `{"name":"x"}`, json, false},
		{"a body that nothing describes", "GET", "/plants", `{}`, json, false},
	} {
		r, _ := http.NewRequest(test.method, "http://plants.example"+test.path, nil)
		r.Header = test.header
		op, err := description().operation(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := op.request(r, test.body); (err == nil) != test.ok {
			t.Errorf("%s: %v, want it allowed: %v", test.what, err, test.ok)
		}
	}
}
