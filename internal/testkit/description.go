package testkit

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

// Check fails the test where an answer is not one that the description has for the request.
func Check(t testing.TB, r *http.Request, body string, a Response) {
	t.Helper()
	if a.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s %s: %d without X-Request-Id", r.Method, r.URL.Path, a.Status)
	}
	if a.Status == http.StatusNotFound && a.Number() == 40402 || a.Status == http.StatusMethodNotAllowed {
		return // about a path or method that is not described; its body is checked by the caller
	}
	if a.Status == http.StatusOK && body != "" {
		sent := described(r)
		sent.Body = io.NopCloser(strings.NewReader(body))
		for _, problem := range unasked(sent) {
			t.Errorf("%s %s: %.200s was answered 200, and the description does not allow it: %s", r.Method, r.URL.Path, body, problem)
		}
	}
	for _, problem := range problems(described(r), a) {
		t.Errorf("%s %s: %d %.200s is not what the description says: %s", r.Method, r.URL.Path, a.Status, a.Body, problem)
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

func problems(r *http.Request, a Response) (found []string) {
	validating.Lock()
	defer validating.Unlock()
	body := farIDs.ReplaceAllString(a.Body, `"id":1`)
	response := &http.Response{StatusCode: a.Status, Header: a.Header, Body: io.NopCloser(strings.NewReader(body)), Request: r}
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

// Allows reports whether the description allows a create with this body.
func Allows(t testing.TB, body []byte) bool {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return newPlant().Validate(value) == nil
}
