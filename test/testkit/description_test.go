package testkit

import (
	"net/http"
	"testing"
)

// The description detects wrong responses, and requests that must not succeed.
func TestDescription(t *testing.T) {
	json := http.Header{"Content-Type": {"application/json"}}
	const plant = `{"id":1,"name":"x"}`
	for _, test := range []struct {
		what, method, path, body string
		a                        Response
		ok                       bool
	}{
		{"created", "POST", "/plants", plant, Response{200, json, `{"name":"x"}`}, true},
		{"created without a name", "POST", "/plants", `{"id":1}`, Response{200, json, `{"name":"x"}`}, false},
		{"no name", "POST", "/plants", plant, Response{200, json, `{"tag":"x"}`}, false},
		{"a name that is a number", "POST", "/plants", plant, Response{200, json, `{"name":1}`}, false},
		{"an Error", "POST", "/plants", plant, Response{400, json, `{"error":40001,"message":"x"}`}, true},
		{"an Error without a message", "POST", "/plants", plant, Response{400, json, `{"error":40001}`}, false},
		{"an unknown status", "POST", "/plants", plant, Response{201, json, `{"name":"x"}`}, false},
		{"another content type", "POST", "/plants", plant, Response{200, http.Header{"Content-Type": {"a/b"}}, `x`}, false},
		{"no content type", "POST", "/plants", plant, Response{200, nil, `{"name":"x"}`}, false},
		{"no JSON", "POST", "/plants", plant, Response{200, json, `{"name":"x"`}, false},
		{"no body", "POST", "/plants", plant, Response{200, json, ``}, false},
		{"no id", "GET", "/plants/1", "", Response{200, json, `{"name":"x"}`}, false},
		{"the largest id", "GET", "/plants/1", "", Response{200, json, `{"id":9223372036854775807,"name":"x"}`}, true},
		{"a page", "GET", "/plants", "", Response{200, json, `[` + plant + `]`}, true},
		{"a page of wrong plants", "GET", "/plants", "", Response{200, json, `[` + plant + `,{"id":2}]`}, false},
		{"a wrong header", "GET", "/plants", "",
			Response{200, http.Header{"Content-Type": json["Content-Type"], "Plants-Count": {"x"}}, `[]`}, false},
		{"a body that nothing describes", "GET", "/plants", `{}`, Response{200, json, `[]`}, false},
		{"replaced", "PUT", "/plants/1", `{"name":"x"}`, Response{200, json, plant}, true},
		{"replaced where the id is a word", "PUT", "/plants/x", `{"name":"x"}`, Response{200, json, plant}, false},
		{"removed", "DELETE", "/plants/1", "", Response{204, nil, ``}, true},
		{"removed, with a body", "DELETE", "/plants/1", "", Response{204, json, `{}`}, false},
		{"another path", "GET", "/plants/1/2", "", Response{200, json, `{}`}, false},
		{"another method", "POST", "/plants/1", plant, Response{200, json, plant}, false},
	} {
		r, _ := http.NewRequest(test.method, "http://127.0.0.1:8080"+test.path, nil)
		r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer x"}}
		if err := violation(r, test.body, test.a); (err == nil) != test.ok {
			t.Errorf("%s: %v, want it allowed: %v", test.what, err, test.ok)
		}
		if r.Header.Del("Authorization"); test.ok && test.body != "" && test.a.Status == 200 &&
			violation(r, test.body, test.a) == nil {
			t.Errorf("%s: allowed without a credential", test.what)
		}
	}
}
