package sqlite

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
)

func openSource(t *testing.T, path string) *Storage {
	t.Helper()
	s, err := OpenSource(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// wantPlants checks the ids of the store "main".
func wantPlants(t *testing.T, s *Storage, want ...int64) {
	t.Helper()
	page, err := s.List(t.Context(), "main", nil, 100)
	var got []int64
	for _, p := range page {
		got = append(got, p.ID)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("List() = %v, %v, want %v", got, err, want)
	}
}

// A source shows what other processes have committed, and can't be written to.
func TestSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	s := open(t, path)
	storagetest.Create(t, s, storagetest.Record("main", 1, "Fern", "-"))
	source := openSource(t, path)
	wantPlants(t, source, 1)
	storagetest.Create(t, s, storagetest.Record("main", 2, "Ivy", "-"))
	wantPlants(t, source, 1, 2)
	tok, _ := token.New("a", "main", token.Read, time.Now(), time.Time{})
	_, err := source.CreateBatch(t.Context(), []plant.Record{storagetest.Record("main", 3, "Oak", "-")})
	for what, err := range map[string]error{
		"CreateBatch": err, "AddToken": source.AddToken(t.Context(), tok), "Check": source.Check(t.Context()),
		"Replace": storagetest.Replace(t.Context(), source, "main", 1, plant.Content{}, nil),
		"Remove":  storagetest.Remove(t.Context(), source, "main", 1, nil),
	} {
		if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "for reading only") {
			t.Errorf("%s of a source = %v", what, err)
		}
	}
	wantPlants(t, s, 1, 2)
}

// Neither the file nor the WAL of a killed process changes, and the plants in the WAL are there.
func TestSourceStaysUnchanged(t *testing.T) {
	w, killed := testWriter(t), filepath.Join(t.TempDir(), "plants.db")
	w.mustAdd(t, 1, "Fern")
	copyFiles(t, w.files.path, killed, "", walSuffix)
	source := openSource(t, killed)
	wantPlants(t, source, 1)
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", walSuffix} {
		before, err := os.ReadFile(w.files.path + suffix)
		after, errAfter := os.ReadFile(killed + suffix)
		if err := errors.Join(err, errAfter); err != nil || !bytes.Equal(before, after) {
			t.Errorf("plants.db%s has changed, %v", suffix, err)
		}
	}
	wantPlants(t, open(t, killed), 1)
}

// A brief read shows the plants beside a service and after its end, when it creates no files.
func TestBriefSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants?#%20.db")
	s := open(t, path)
	storagetest.Create(t, s, storagetest.Record("main", 1, "Fern", "-"))
	for range 2 {
		brief, err := OpenBriefly(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		wantPlants(t, brief, 1)
		if err := errors.Join(brief.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	}
	if files, err := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("the folder has %v, %v, want the database only", files, err)
	}
}

// A source is not created and not migrated.
func TestSourceIsRefused(t *testing.T) {
	folder := t.TempDir()
	missing, older, text := filepath.Join(folder, "missing"), filepath.Join(folder, "older"), filepath.Join(folder, "text")
	open(t, older).Close()
	if err := os.WriteFile(text, bytes.Repeat([]byte("Not a database. "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	script(t, openOther(t, older), "PRAGMA user_version = 1")
	for path, want := range map[string]string{
		missing: "no such file or directory",
		older: "its schema has version 1 and this program needs version 6; make a backup, and run plantstore db migrate " +
			"--db with this file",
		folder: "it is not a regular file",
		text:   "it is damaged or is not a SQLite database",
	} {
		for _, open := range []func(context.Context, string) (*Storage, error){OpenSource, OpenBriefly} {
			if s, err := open(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) ||
				!strings.HasPrefix(err.Error(), "open the database "+path+": ") {
				t.Errorf("a source %s = %v, %v, want %q", path, s, err, want)
			}
		}
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the missing file = %v, want it missing still", err)
	}
}
