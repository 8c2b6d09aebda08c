package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"plantstore/internal/server"
)

// Profiles are limited in number and duration, so that health checks find a free connection.
func TestProfilesAreLimited(t *testing.T) {
	started, end := make(chan struct{}), make(chan struct{})
	h := server.LimitProfiles(make(chan struct{}, 1), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(started)
		<-end
	}))
	status := func(query string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/debug/pprof/heap"+query, nil))
		return w.Code
	}
	if got := status("?seconds=61"); got != http.StatusBadRequest {
		t.Errorf("a profile of 61 s: %d", got)
	}
	first := make(chan int)
	go func() { first <- status("?seconds=60") }()
	<-started
	if got := status(""); got != http.StatusServiceUnavailable {
		t.Errorf("a second profile: %d", got)
	}
	close(end)
	if got := <-first; got != http.StatusOK {
		t.Errorf("the first profile: %d", got)
	}
}
