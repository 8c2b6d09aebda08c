package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
)

// backUp creates a database with n plants, a second store and a token, and its backup.
func backUp(t *testing.T, n int) (db, path string) {
	t.Helper()
	db = filepath.Join(t.TempDir(), "plants.db")
	s, err := sqlite.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	all := []plant.Record{storagetest.Record("other", -1, "é", "")}
	for id := range n {
		all = append(all, storagetest.Record("main", int64(id), fmt.Sprint("Fern ", id), "shade"))
	}
	one, _ := token.New("one", "main", token.AllScopes, time.Now(), time.Time{})
	storagetest.Create(t, s, all...)
	if err := s.AddToken(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "backup")
	contents, err := Write(t.Context(), db, path)
	if want := (sqlite.Contents{Plants: int64(n) + 1, Tokens: 1}); err != nil || contents != want {
		t.Fatalf("Write() = %v, %v, want %v", contents, err, want)
	}
	return db, path
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want it to contain %q", err, want)
	}
}

// wantFiles fails if a folder has other files.
func wantFiles(t *testing.T, folder string, want ...string) {
	t.Helper()
	var got []string
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s has %v, %v, want %v", folder, got, err, want)
	}
}

// Every changed bit, and every missing or additional byte, is found.
func TestVerify(t *testing.T) {
	_, path := backUp(t, 2000)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	want := func(what string, content []byte, message string) {
		t.Helper()
		if err := os.WriteFile(damaged, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Verify(t.Context(), damaged)
		if wantError(t, err, damaged+message); t.Failed() {
			t.Fatal(what)
		}
	}
	for i := range 300 {
		bit := rand.IntN(8 * len(whole))
		if i < 100 { // the header
			bit = rand.IntN(8 * 100)
		}
		changed := slices.Clone(whole)
		changed[bit/8] ^= 1 << (bit % 8)
		want(fmt.Sprint("bit ", bit), changed, " ")
	}
	for _, n := range []int{0, 1, 50, 4096, len(whole) / 2, len(whole) - 93, len(whole) - 1} {
		want(fmt.Sprint(n, " bytes"), whole[:n], " does not end with a checksum")
	}
	want("a byte more", append(slices.Clip(whole), 'x'), " does not end with a checksum")
	want("a page less", slices.Concat(whole[:4096], whole[8192:]), " is damaged: its checksum differs")
	want("a text", []byte("hello"), " does not end with a checksum")
}

// A backup of a damaged database and one that is interrupted leave no file.
func TestWriteFails(t *testing.T) {
	db, path := backUp(t, 2000)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(whole[5*4096:], make([]byte, 4096)) // a page of plants
	broken := filepath.Join(t.TempDir(), "broken.db")
	if err := os.WriteFile(broken, whole[:int64(len(whole))-checksumSize], 0o600); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "backup")
	_, err = Write(t.Context(), broken, to)
	wantError(t, err, "back up to "+to+": the copy is not correct; check "+broken+" with plantstore doctor --integrity: ")
	if strings.Contains(err.Error(), ".partial-") {
		t.Errorf("Write() = %v", err)
	}
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted)
	if _, err := Write(ctx, db, to); !errors.Is(err, interrupted) {
		t.Errorf("Write() = %v, want that it was interrupted", err)
	}
	if _, err := Restore(ctx, path, to, unprepared); !errors.Is(err, interrupted) {
		t.Errorf("Restore() = %v, want that it was interrupted", err)
	}
	wantFiles(t, filepath.Dir(to))
}

// An existing file is not replaced, also if it is created at the end.
func TestReplacesNothing(t *testing.T) {
	db, path := backUp(t, 1)
	_, err := Write(t.Context(), db, path)
	wantError(t, err, "back up to "+path+": the file exists; name another one")
	_, err = Restore(t.Context(), path, db, unprepared)
	wantError(t, err, "restore to "+db+": the file exists; name another one")
	to := filepath.Join(t.TempDir(), "file")
	err = create(t.Context(), to, func(io.Writer) error { return os.WriteFile(to, []byte("mine"), 0o600) },
		func(string) error { return nil })
	wantError(t, err, errExists.Error())
	if text, err := os.ReadFile(to); string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	wantFiles(t, filepath.Dir(to), "file")
}

func unprepared(string, sqlite.Contents) error { return nil }
