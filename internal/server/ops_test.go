package server_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"plantstore/internal/server"
	"plantstore/internal/storage"
)

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
