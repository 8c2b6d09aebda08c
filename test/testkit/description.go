package testkit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"plantstore/api"
)

// Check fails the test if the response is not one that the description has for the request, or if a
// request that the description forbids returned 200.
func Check(t testing.TB, r *http.Request, body string, a Response) {
	t.Helper()
	if a.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s %s: %d without X-Request-Id", r.Method, r.URL.Path, a.Status)
	}
	if a.Status == http.StatusNotFound && a.Number() == 40402 || a.Status == http.StatusMethodNotAllowed {
		return // about a path or method that is not described; the caller checks its body
	}
	if err := violation(r, body, a); err != nil {
		t.Errorf("%s %s %.200s: %d %.200s is not as described: %v", r.Method, r.URL.Path, body, a.Status, a.Body, err)
	}
}

// The published descriptions of a server without sandboxes and of one with them, whatever its address is.
var (
	plain     = sync.OnceValue(func() routers.Router { return operations(false) })
	sandboxed = sync.OnceValue(func() routers.Router { return operations(true) })
)

func operations(sandbox bool) routers.Router {
	document, err := openapi3.NewLoader().LoadFromData(api.Description("json", "http://plants.example", sandbox))
	if err != nil {
		panic(err)
	}
	document.Servers = nil
	router, err := legacy.NewRouter(document)
	if err != nil {
		panic(err)
	}
	return router
}

// violation returns in what way a request that returned 200, or its response, violates the description, or nil.
func violation(r *http.Request, body string, a Response) error {
	route, parameters, err := plain().FindRoute(r)
	applied := a.Header.Get("Preference-Applied")
	inSandbox := applied != "" && applied != "count=exact" || a.Number() == 40035 || a.Number() == 40036
	if err != nil || inSandbox { // only a sandbox injects faults, or is full
		route, parameters, err = sandboxed().FindRoute(r)
	}
	if err != nil {
		return err
	}
	sent := r.Clone(context.Background())
	sent.Body = io.NopCloser(strings.NewReader(body))
	sent.Header.Set("Content-Type", strings.ToLower(r.Header.Get("Content-Type"))) // the validator does not ignore case
	request := &openapi3filter.RequestValidationInput{
		Request: sent, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{
			SkipSettingDefaults: true,
			AuthenticationFunc: func(context.Context, *openapi3filter.AuthenticationInput) error {
				if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
					return errors.New("the credential is missing")
				}
				return nil
			},
		},
	}
	if a.Status == http.StatusOK && body != "" {
		if route.Operation.RequestBody == nil {
			return errors.New("no body is described")
		}
		if err := openapi3filter.ValidateRequest(context.Background(), request); err != nil {
			return err
		}
	}
	if described := route.Operation.Responses.Status(a.Status); described != nil && len(described.Value.Content) == 0 &&
		a.Body != "" {
		return errors.New("no body is described")
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: request, Status: a.Status, Header: a.Header, Body: io.NopCloser(strings.NewReader(a.Body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
}
