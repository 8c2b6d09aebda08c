package testkit

import (
	"net/http"
	"strings"
	"testing"
)

// The validator must be able to say no.
func TestDescriptionIsHeld(t *testing.T) {
	r, _ := http.NewRequest("POST", "http://plants.example/plants", nil)
	json := http.Header{"Content-Type": {"application/json"}}
	for _, test := range []struct {
		what string
		a    Response
	}{
		{"an answer without a name", Response{200, json, `{"tag":"x"}`}},
		{"a name that is a number", Response{200, json, `{"name":1}`}},
		{"an Error without a message", Response{400, json, `{"error":40001}`}},
		{"a status that is not described", Response{201, json, `{"name":"x"}`}},
		{"another content type", Response{200, http.Header{"Content-Type": {"text/plain"}}, `x`}},
	} {
		if len(problems(r, test.a)) == 0 {
			t.Errorf("%s: not noticed", test.what)
		}
	}
	wrong, _ := http.NewRequest("POST", "http://plants.example/plants", strings.NewReader(`{"id":1}`))
	wrong.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer x"}}
	if len(unasked(wrong)) == 0 {
		t.Error("a request without a name: not noticed")
	}
	if found := problems(r, Response{200, json, `{"name":"x"}`}); len(found) > 0 {
		t.Errorf("a right answer: %v", found)
	}
	for body, want := range map[string]bool{
		`{"id":1,"name":"x"}`: true, `{"id":1.0,"name":""}`: true, `{"id":1e2,"name":"x","tag":""}`: true, `{"id":1,"name":"x","more":null}`: true,
		`{"id":9223372036854775807,"name":"x"}`: true, `{"id":9223372036854775808,"name":"x"}`: false, `{"id":-9223372036854775809,"name":"x"}`: false,
		`{"id":1.5,"name":"x"}`: false, `{"id":1}`: false, `{"id":"1","name":"x"}`: false, `{"id":1,"name":"a\u0000"}`: false, `{"id":1,"name":"x","tag":null}`: false, `[]`: false,
	} {
		if got := Allows(t, []byte(body)); got != want {
			t.Errorf("the description allows %s: %v, want %v", body, got, want)
		}
	}
}
