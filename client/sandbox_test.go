package client_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"plantstore/client"
)

const sandboxBody = `{"store":"sandbox:x","token":"` + secret + `","expires":"2026-11-18T20:30:00.123Z","plants":12}`

// A new sandbox is created without a token, is used with its own, and is removed by Close.
func TestNewSandbox(t *testing.T) {
	var got []seen
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var s seen
		s.ServeHTTP(httptest.NewRecorder(), r)
		got = append(got, s)
		switch len(got) {
		case 1:
			reply(503, `{"error":50307,"message":"too many"}`)(w, r)
		case 2:
			reply(201, sandboxBody)(w, r)
		case 3:
			stored(w, r)
		default:
			w.WriteHeader(204)
		}
	}))
	defer server.Close()
	s, err := client.NewSandbox(t.Context(), server.URL+"/api", client.WithRetries(1, time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	expires := time.Date(2026, 11, 18, 20, 30, 0, 123e6, time.UTC)
	if s.Store != "sandbox:x" || s.Token != secret || !s.Expires.Equal(expires) {
		t.Errorf("the sandbox is %+v", s)
	}
	if _, err := s.Client.Get(t.Context(), 7); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	create, authorization := seen{method: "POST", uri: "/api/sandboxes"}, "Bearer "+secret
	want := []seen{create, create, {method: "GET", uri: "/api/plants/7", authorization: authorization},
		{method: "DELETE", uri: "/api/sandbox", authorization: authorization}}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("the requests are %+v, want %+v", got, want)
		}
	}
}

func TestWithSandbox(t *testing.T) {
	var got seen
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.ServeHTTP(httptest.NewRecorder(), r)
		reply(201, sandboxBody)(w, r)
	}))
	defer server.Close()
	_, err := client.NewSandbox(t.Context(), server.URL, client.WithSandbox("empty", 90*time.Second))
	if want := (seen{method: "POST", uri: "/sandboxes", body: `{"seed":"empty","ttl":90}`,
		contentType: "application/json"}); err != nil || got != want {
		t.Errorf("%v; the request is %+v, want %+v", err, got, want)
	}
}

// A service without sandboxes, or another server, is an error, and there is no sandbox.
func TestNoSandbox(t *testing.T) {
	for body, number := range map[string]int32{`{"error":40402,"message":"none"}`: 40402, "not found": 0} {
		server := httptest.NewServer(reply(404, body))
		s, err := client.NewSandbox(t.Context(), server.URL)
		if e, ok := errors.AsType[*client.Error](err); s != nil || !ok || e.Status != 404 || e.Number != number {
			t.Errorf("a 404 with %s: %+v, %v", body, s, err)
		}
		server.Close()
	}
	for _, body := range []string{"", "{}", "[]", `{"token":""}`} {
		server := httptest.NewServer(reply(201, body))
		if s, err := client.NewSandbox(t.Context(), server.URL); s != nil || err == nil ||
			!strings.Contains(err.Error(), "not from a Plant Store") {
			t.Errorf("a 201 with %q: %+v, %v", body, s, err)
		}
		server.Close()
	}
	if s, err := client.NewSandbox(t.Context(), "x"); s != nil || err == nil {
		t.Errorf("an invalid URL: %+v, %v", s, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := client.NewSandbox(ctx, "http://127.0.0.1:1"); s != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %+v, %v", s, err)
	}
}

// Create a store for one test, and remove it at its end. With testing, use t.Context and t.Cleanup.
func ExampleNewSandbox() {
	sandbox, err := client.NewSandbox(context.Background(), "http://127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	fern := client.NewPlant{ID: 20, Plant: client.Plant{Name: "Fern"}}
	if _, err := sandbox.Client.Create(context.Background(), fern); err != nil {
		log.Print(err)
	}
}
