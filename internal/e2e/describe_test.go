package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"plantstore/api"
)

// description is the published one, as a validator for requests and answers.
var description = sync.OnceValue(func() validator.Validator {
	doc, err := libopenapi.NewDocument(api.YAML("http://plants.example"))
	if err != nil {
		panic(err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		panic(errs)
	}
	return v
})

var validating sync.Mutex // the validator caches what it has rendered, without a lock

// hold fails the test where an answer is not one that the description has for the request.
func hold(t testing.TB, r *http.Request, body string, a answer) {
	t.Helper()
	if a.header.Get("X-Request-Id") == "" {
		t.Errorf("%s %s: %d without X-Request-Id", r.Method, r.URL.Path, a.status)
	}
	if a.status == http.StatusNotFound && a.number() == 40402 || a.status == http.StatusMethodNotAllowed {
		return // about a path or method that is not described; its body is checked by the caller
	}
	if a.status == http.StatusOK && body != "" {
		sent := described(r)
		sent.Body = io.NopCloser(strings.NewReader(body))
		for _, problem := range unasked(sent) {
			t.Errorf("%s %s: %.200s was answered 200, and the description does not allow it: %s", r.Method, r.URL.Path, body, problem)
		}
	}
	for _, problem := range problems(described(r), a) {
		t.Errorf("%s %s: %d %.200s is not what the description says: %s", r.Method, r.URL.Path, a.status, a.body, problem)
	}
}

// described is the request as if it had been sent to the server that the description names.
func described(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	r.URL = &url.URL{Scheme: "http", Host: "plants.example", Path: r.URL.Path, RawQuery: r.URL.RawQuery}
	r.Host, r.Body = "", nil
	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// unasked is what the description has against a request.
func unasked(r *http.Request) (found []string) {
	validating.Lock()
	defer validating.Unlock()
	text, _ := io.ReadAll(r.Body)
	text = bytes.ReplaceAll(text, []byte("1e400"), []byte("1")) // more than its floats hold
	r.Body = io.NopCloser(bytes.NewReader(farNumbers.ReplaceAll(text, []byte(`"id":1`))))
	_, errs := description().ValidateHttpRequest(r)
	for _, e := range errs {
		found = append(found, e.Message+": "+e.Reason)
	}
	return found
}

// farNumbers are those of farIDs in what clients write.
var farNumbers = regexp.MustCompile(`"id":\s*-?[0-9]{16,}(\.0*)?`)

// farIDs are integers that the validator, which reads numbers as floats, takes for others.
var farIDs = regexp.MustCompile(`"id":-?[0-9]{16,}`)

func problems(r *http.Request, a answer) (found []string) {
	validating.Lock()
	defer validating.Unlock()
	body := farIDs.ReplaceAllString(a.body, `"id":1`)
	response := &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(body)), Request: r}
	_, errs := description().ValidateHttpResponse(r, response)
	for _, e := range errs {
		found = append(found, e.Message+": "+e.Reason)
	}
	return found
}

// newPlant is the described schema of a create's body, for a judge whose numbers are exact.
var newPlant = sync.OnceValue(func() *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.JSON("http://plants.example")))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		panic(err)
	}
	return c.MustCompile("openapi.json#/components/schemas/NewPlant")
})

// allows reports whether the description allows a create with this body.
func allows(t testing.TB, body []byte) bool {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return newPlant().Validate(value) == nil
}

// The validator must be able to say no.
func TestDescriptionIsHeld(t *testing.T) {
	r, _ := http.NewRequest("POST", "http://plants.example/plants", nil)
	json := http.Header{"Content-Type": {"application/json"}}
	for _, test := range []struct {
		what string
		a    answer
	}{
		{"an answer without a name", answer{200, json, `{"tag":"x"}`}},
		{"a name that is a number", answer{200, json, `{"name":1}`}},
		{"an Error without a message", answer{400, json, `{"error":40001}`}},
		{"a status that is not described", answer{201, json, `{"name":"x"}`}},
		{"another content type", answer{200, http.Header{"Content-Type": {"text/plain"}}, `x`}},
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
	if found := problems(r, answer{200, json, `{"name":"x"}`}); len(found) > 0 {
		t.Errorf("a right answer: %v", found)
	}
	for body, want := range map[string]bool{
		`{"id":1,"name":"x"}`: true, `{"id":1.0,"name":""}`: true, `{"id":1e2,"name":"x","tag":""}`: true, `{"id":1,"name":"x","more":null}`: true,
		`{"id":9223372036854775807,"name":"x"}`: true, `{"id":9223372036854775808,"name":"x"}`: false, `{"id":-9223372036854775809,"name":"x"}`: false,
		`{"id":1.5,"name":"x"}`: false, `{"id":1}`: false, `{"id":"1","name":"x"}`: false, `{"id":1,"name":"a\u0000"}`: false, `{"id":1,"name":"x","tag":null}`: false, `[]`: false,
	} {
		if got := allows(t, []byte(body)); got != want {
			t.Errorf("the description allows %s: %v, want %v", body, got, want)
		}
	}
}
