package server

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/token"
)

func TestMaxConns(t *testing.T) {
	for _, c := range []struct {
		processors int
		files      uint64
		memory     int64
		want       int
	}{
		{2, math.MaxUint64, math.MaxInt64, 1024},
		{64, 1 << 20, math.MaxInt64, 4096},
		{64, 1 << 20, 256 << 20, 2048},
		{2, 64, math.MaxInt64, 24},
		{2, 10, math.MaxInt64, 4},
		{2, 1 << 20, 1 << 20, 8},
	} {
		if got := maxConns(c.processors, c.files, c.memory); got != c.want {
			t.Errorf("maxConns(%d, %d, %d) = %d, want %d", c.processors, c.files, c.memory, got, c.want)
		}
	}
}

// The smallest limit of the groups that hold the process counts, in both versions of control groups.
func TestMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"none":         {nil, math.MaxInt64},
		"second":       {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1000\n"}, 1000},
		"first":        {map[string]string{"proc/self/cgroup": "5:cpu:/x\n4:memory:/a\n0::/\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "2000\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1\n"}, 2000},
		"in container": {map[string]string{"proc/self/cgroup": "4:memory:/docker/1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "3000\n"}, 3000},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryLimit(root); got != c.want {
			t.Errorf("%s: memoryLimit() = %d, want %d", name, got, c.want)
		}
	}
}

// stuck is a database that does not answer before it is let go.
type stuck struct{ entered, release chan struct{} }

func (s stuck) Create(context.Context, plant.Record) (plant.Outcome, error) {
	s.entered <- struct{}{}
	<-s.release
	return plant.Created, nil
}

// When the database hangs, one token can't fill the queue: there is room for another.
func TestQueueIsShared(t *testing.T) {
	c, _ := pair(t)
	l := c.from
	requests := func(name byte) context.Context {
		c := &conn{from: l}
		l.mu.Lock()
		l.conns[c] = struct{}{}
		l.mu.Unlock()
		ctx := connContext(t.Context(), c)
		l.admit(ctx, token.Hash{name})
		return ctx
	}
	db := stuck{make(chan struct{}, 100), make(chan struct{})}
	f := &fair{Creator: db, tokens: &l.tokens, queue: 40}
	var waiting sync.WaitGroup
	create := func(ctx context.Context) bool {
		refused := make(chan error, 1)
		waiting.Go(func() {
			if _, err := f.Create(ctx, plant.Record{}); err != nil {
				refused <- err
			}
		})
		select {
		case <-db.entered:
			return true
		case err := <-refused:
			if !errors.Is(err, plant.ErrBusy) {
				t.Errorf("refused with %v", err)
			}
			return false
		}
	}
	greedy := requests('g')
	for range 30 { // alone, it may have more than half
		if !create(greedy) {
			t.Fatal("refused although nobody else is there")
		}
	}
	modest := requests('m')
	if create(greedy) {
		t.Error("the greedy token has 30 of 40 under way, and another was taken while somebody else is there")
	}
	for n := range 5 {
		if !create(modest) {
			t.Errorf("the modest token was refused with %d under way", n)
		}
	}
	close(db.release)
	waiting.Wait()
	if f.creating.Load() != 0 {
		t.Errorf("%d creates are under way after all", f.creating.Load())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		l.unshare(c)
	}
	if len(l.shares) != 0 || l.tokens.Load() != 0 {
		t.Errorf("%d tokens still have a share", len(l.shares))
	}
}
