package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/tables"
	"plantstore/internal/token"
)

const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

// occupy runs n queries at once that end with their context only.
func occupy(t *testing.T, s *Storage, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, n)
	for range n {
		go func() {
			_, err := database{s}.Read(ctx, tables.Ordinary, endless)
			errs <- err
		}()
	}
	deadline := time.Now().Add(30 * time.Second)
	for ; len(s.readers.idle) > cap(s.readers.idle)-n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the readers are not busy after 30 s")
		}
	}
	return func() {
		cancel()
		for range n {
			select {
			case err := <-errs:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("a read whose context ended = %v, want %v", err, context.Canceled)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("a read has not ended 30 s after its context")
			}
		}
	}
}

func newStorage(t *testing.T) *Storage { return open(t, filepath.Join(t.TempDir(), "plants.db")) }

func open(t *testing.T, path string) *Storage {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A read ends with its context, and its connection serves the next one.
func TestReadEndsWithContext(t *testing.T) {
	s := newStorage(t)
	cancel := occupy(t, s, cap(s.readers.idle))
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if _, err := s.Get(short, "main", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get() while every reader is busy = %v, want %v", err, context.DeadlineExceeded)
	}
	cancel()
	for range 2 * cap(s.readers.idle) {
		if _, err := s.Get(t.Context(), "main", 1); !errors.Is(err, plant.ErrNotFound) {
			t.Errorf("Get() after that = %v, want %v", err, plant.ErrNotFound)
		}
	}
}

// Close waits for reads, and refuses all that follow.
func TestCloseDuringReads(t *testing.T) {
	s := newStorage(t)
	cancel := occupy(t, s, 1)
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	<-s.readers.closed.Done()
	cancel()
	if err := <-closed; err != nil {
		t.Errorf("Close() = %v", err)
	}
	for name, read := range map[string]func() error{
		"Get":         func() error { _, err := s.Get(t.Context(), "main", 1); return err },
		"TokenByHash": func() error { _, err := s.TokenByHash(t.Context(), token.Hash{}); return err },
		"Check":       func() error { return s.Check(t.Context()) },
		"AddToken":    func() error { return s.AddToken(t.Context(), token.Token{}) },
		"RevokeToken": func() error { return s.RevokeToken(t.Context(), "x", time.Now()) },
	} {
		if err := read(); !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%s after Close() = %v, want %v", name, err, storage.ErrUnavailable)
		}
	}
}
