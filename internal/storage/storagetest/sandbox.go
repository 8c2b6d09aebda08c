package storagetest

import (
	"slices"
	"testing"
	"time"

	"plantstore/internal/storage"
	"plantstore/internal/token"
)

func testSandboxes(t *testing.T, open Open) {
	s, there := opened(t, open), opened(t, open)
	if s.Stats().Nodes != nil {
		return // serve refuses --sandbox on a cluster
	}
	ctx, start := t.Context(), time.UnixMilli(1_700_000_000_123).UTC()
	sandbox := func(store string, created time.Time) storage.Sandbox {
		return storage.Sandbox{
			Store: token.SandboxPrefix + store, Hash: token.HashOf(store), Seed: "garden", Created: created,
			Expires: created.Add(time.Hour), Used: created, Plants: 12, Bytes: 345,
		}
	}
	want := func(what string, want ...storage.Sandbox) {
		t.Helper()
		if got, err := there.Sandboxes(ctx); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: Sandboxes() = %v, %v, want %v", what, got, err, want)
		}
	}
	want("a new database")
	old, young := sandbox("b", start), sandbox("a", start.Add(time.Millisecond))
	for _, b := range []storage.Sandbox{young, old} {
		if err := s.AddSandbox(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	want("added", old, young)
	if got, err := s.SandboxByHash(ctx, young.Hash); err != nil || got != young {
		t.Errorf("SandboxByHash() = %v, %v, want %v", got, err, young)
	}
	_, err := s.SandboxByHash(ctx, token.HashOf("unknown"))
	wantError(t, "SandboxByHash of no sandbox", err, token.ErrUnknown)
	_, err = s.TokenByHash(ctx, young.Hash)
	wantError(t, "TokenByHash of a sandbox", err, token.ErrUnknown)

	changed := young // its end can only become earlier, its last use only later
	changed.Expires, changed.Used, changed.Plants, changed.Bytes = start, start.Add(time.Minute), -2, 100
	late := changed
	late.Expires, late.Used, late.Seed, late.Plants, late.Bytes = start.Add(48*time.Hour), start, "other", 3, -45
	unknown := sandbox("c", start)
	if err := s.ChangeSandboxes(ctx, []storage.Sandbox{changed, unknown}); err != nil {
		t.Fatal(err)
	}
	if err := s.ChangeSandboxes(ctx, []storage.Sandbox{late}); err != nil {
		t.Fatal(err)
	}
	changed.Plants, changed.Bytes = 12-2+3, 345+100-45
	want("changed", old, changed)
	for range 2 {
		if err := s.ForgetSandbox(ctx, old.Store); err != nil {
			t.Error(err)
		}
	}
	want("forgotten", changed)
}
