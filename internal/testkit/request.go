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

func WantResponse(t testing.TB, what string, a Response, status int, body string) {
	t.Helper()
	if a.Status != status || a.Body != body {
		t.Errorf("%s: %d %s, want %d %s", what, a.Status, a.Body, status, body)
	}
}

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

// Send sends a request without a look at the description, which takes its time with large bodies.
func (p *Server) Send(method, path, body string) (Response, error) {
	return Send(p.URL, p.Token, method, path, body)
}

// Target is where a client sends its plants, and with which token.
type Target struct{ URL, Token string }

// Response is what a client sees of a response.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Number is the catalogue number of an Error body, or 0.
func (a Response) Number() int {
	var n int
	fmt.Sscanf(a.Body, `{"error":%d,`, &n)
	return n
}

var HTTP = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}

// Do sends a request as it is given: nothing is added to the headers but the credential, where
// there is none. The answer is held to the published description.
func (p *Server) Do(t testing.TB, method, path, body string, headers ...string) Response {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, p.URL+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.Token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if value == "" {
			r.Header.Del(name)
		} else {
			r.Header.Set(name, value)
		}
	}
	response, err := HTTP.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	a := Response{response.StatusCode, response.Header, string(text)}
	Check(t, r, body, a)
	return a
}

const ContentJSON = "Content-Type: application/json"

func (p *Server) Create(t testing.TB, body string) Response {
	t.Helper()
	return p.Do(t, "POST", "/plants", body, ContentJSON)
}

// Send makes one request with a token and reads the answer.
func Send(to, token, method, path, body string) (Response, error) {
	r, err := http.NewRequest(method, to+path, strings.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	response, err := HTTP.Do(r)
	if err != nil {
		return Response{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return Response{response.StatusCode, response.Header, string(text)}, err
}

const LongIdle = 500 * time.Millisecond // a server that stops keeps idle connections for twice as long

// Target is the server's own address and token.
func (p *Server) Target() Target { return Target{p.URL, p.Token} }
