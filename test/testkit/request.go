package testkit

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// HTTP is the client that requests are sent with.
var HTTP = &http.Client{
	Timeout:   Deadline,
	Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true, TLSClientConfig: ClientTLS()},
}

// ContentJSON is a header for Do.
const ContentJSON = "Content-Type: application/json"

// LongIdle is how long a client keeps an idle connection before it expects the server to have closed it. A server
// that stops keeps idle connections twice as long.
const LongIdle = 500 * time.Millisecond

// Response is a response with its body.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Number is the error number of the body, or 0.
func (a Response) Number() int {
	var n int
	fmt.Sscanf(a.Body, `{"error":%d,`, &n)
	return n
}

// Do sends a request with the server's token and exactly the given headers, of the form "Name: value"; a name alone
// removes the header. The request and the response are checked against the published description.
func (s *Server) Do(t testing.TB, method, path, body string, headers ...string) Response {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, s.URL+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	setHeaders(r, headers)
	a, err := roundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	Check(t, r, body, a)
	return a
}

func setHeaders(r *http.Request, headers []string) {
	for _, h := range headers {
		if name, value, ok := strings.Cut(h, ": "); ok {
			r.Header.Set(name, value)
		} else {
			r.Header.Del(name)
		}
	}
}

// Create sends POST /plants.
func (s *Server) Create(t testing.TB, body string) Response {
	t.Helper()
	return s.Do(t, "POST", "/plants", body, ContentJSON)
}

// Target is an address of the API and a token for it.
type Target struct{ URL, Token string }

// Target is the server's own address and token.
func (s *Server) Target() Target { return Target{s.URL, s.Token} }

// Send sends a request without a check against the description, which takes long for large bodies.
func (s *Server) Send(method, path, body string) (Response, error) {
	return s.Target().Send(method, path, body)
}

// Send sends a request once, with the token and more headers as for Do: net/http repeats a write only if it wrote
// nothing.
func (to Target) Send(method, path, body string, headers ...string) (Response, error) {
	r, err := http.NewRequest(method, to.URL+path, strings.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	r.Header.Set("Authorization", "Bearer "+to.Token)
	r.Header.Set("Content-Type", "application/json")
	setHeaders(r, headers)
	return roundTrip(r)
}

func roundTrip(r *http.Request) (Response, error) {
	response, err := HTTP.Do(r)
	if err != nil {
		return Response{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return Response{response.StatusCode, response.Header, string(text)}, err
}

// WantResponse checks the status and the body of a response.
func WantResponse(t testing.TB, what string, a Response, status int, body string) {
	t.Helper()
	if a.Status != status || a.Body != body {
		t.Errorf("%s: %d %s, want %d %s", what, a.Status, a.Body, status, body)
	}
}

// WantError checks that a response is a well-formed Error with a number.
func WantError(t testing.TB, what string, a Response, number int) {
	t.Helper()
	if a.Status != number/100 || a.Number() != number {
		t.Errorf("%.100s: %d %s, want error %d", what, a.Status, a.Body, number)
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("%.100s: Content-Type %q, want application/json", what, ct)
	}
	var e struct {
		Error   *int32
		Message *string
	}
	if err := json.Unmarshal([]byte(a.Body), &e); err != nil || e.Error == nil || e.Message == nil || *e.Message == "" {
		t.Errorf("%.100s: %s is not an Error: %v", what, a.Body, err)
	}
}
