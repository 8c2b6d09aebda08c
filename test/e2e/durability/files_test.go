//go:build linux

package durability

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// No create that is sent after the file, its WAL or the index of the WAL was removed returns 200.
func TestFileIsRemoved(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		t.Run("plants.db"+suffix, func(t *testing.T) {
			t.Parallel()
			db := filepath.Join(t.TempDir(), "plants.db")
			s := testkit.StartFixed(t, db)
			r := newRecord(10)
			r.want(t, s, 0, 200)
			stop := r.Start(t, ledger.Options{Clients: 8}, s.Target())
			r.Wait(t, 100)
			if err := os.Remove(db + suffix); err != nil {
				t.Fatal(err)
			}
			if got := r.create(s, 1); got != 50302 && got != 50303 { // It may be in the commit that finds it.
				t.Errorf("the first create afterwards: %d", got)
			}
			for id := range int64(10) {
				r.want(t, s, id+2, 50303)
			}
			stop()
			wantNotReady(t, s, "removed")
			wantRead(t, s, 0)
		})
	}
}

// A list that finds a damaged page returns 503. The service is then not ready, even if other reads succeed, until it is
// restarted with an undamaged file.
func TestDamagedFile(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	db := filepath.Join(t.TempDir(), "plants.db")
	s := testkit.StartFixed(t, db)
	r := newRecord(250)
	for id := range int64(100) {
		r.want(t, s, id, 200)
	}
	s.Stop() // A clean stop copies the WAL into the file.
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	const page = 2048
	damaged, position := bytes.Clone(whole), bytes.Index(whole, []byte(r.name(90)))/page*page
	for i := range 30 {
		damaged[position+i] ^= 0xff
	}
	if err := os.WriteFile(db, damaged, 0o600); err != nil || position <= 0 {
		t.Fatalf("plant 90 is on the page at %d: %v", position, err)
	}
	s = testkit.StartFixed(t, db)
	s.WaitReady(t, true) // A start reads only a few pages.
	wantRead(t, s, 1)
	testkit.WantError(t, "a list of damaged pages", s.Do(t, "GET", "/plants?limit=100", ""), 50303)
	for range 3 {
		wantRead(t, s, 1)
		wantNotReady(t, s, "restore a backup")
	}
	s.Stop()
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(db + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(db, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s = testkit.StartFixed(t, db)
	r.check(t, s, db)
	s.WaitReady(t, true)
}
