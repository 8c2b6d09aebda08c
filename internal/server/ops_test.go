package server_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"plantstore/internal/server"
	"plantstore/internal/storage"
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

// observed is a store that passes on the function that observes its checkpoints.
type observed struct {
	storage.Storage
	observe chan func(took time.Duration, err error)
}

func (o observed) ObserveCheckpoints(observe func(took time.Duration, err error)) {
	o.observe <- observe
}

// A checkpoint that fails is logged, also where no metrics count it.
func TestFailedCheckpointIsLogged(t *testing.T) {
	for _, ops := range []string{"", "off"} {
		st := observed{openStorage(t), make(chan func(time.Duration, error), 1)}
		s := start(t, server.Config{OpsListen: ops}, st)
		observe := <-st.observe
		observe(time.Millisecond, nil)
		observe(time.Millisecond, errors.New("the disk failed"))
		s.end(t)
		if log := s.log.String(); strings.Count(log, "checkpoint") != 1 || !strings.Contains(log, "the disk failed") {
			t.Errorf("with --ops-listen %q the log is %s", ops, log)
		}
	}
}
