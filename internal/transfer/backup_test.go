package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/internal/store/sqlite"
	"plantstore/internal/store/storetest"
	"plantstore/internal/transfer"
)

var files = transfer.Engine{
	Open:      func(path string) (transfer.Database, error) { return sqlite.OpenBackup(path) },
	DropCache: sqlite.DropPageCache,
}

// backUp creates a database with n plants and its backup.
func backUp(t *testing.T, n int) (db, backup string) {
	t.Helper()
	db = filepath.Join(t.TempDir(), "plants.db")
	s, err := sqlite.Open(t.Context(), db)
	closeLater(t, s, err)
	fill(t, s, "main", n)
	create(t, s, storetest.Record("other", -1, "é", ""))
	addTokens(t, s)
	backup = filepath.Join(t.TempDir(), "backup")
	report, err := transfer.Backup(t.Context(), backup, files, pagesOf(db))
	if err != nil || report.Plants() != int64(n)+1 || report.Tokens != 3 || len(report.Stores) != 2 {
		t.Fatalf("Backup() = %v, %v", report, err)
	}
	restored := filepath.Join(t.TempDir(), "restored.db")
	if _, err := transfer.Restore(t.Context(), backup, restored, files); err != nil {
		t.Fatal(err)
	}
	r, err := sqlite.OpenSource(t.Context(), restored)
	closeLater(t, r, err)
	if got, err := transfer.Check(t.Context(), s, r, transfer.Options{}); err != nil || got.Tokens != 3 ||
		fmt.Sprint(got.Stores) != fmt.Sprint(report.Stores) {
		t.Errorf("Check() = %v, %v, want %v", got, err, report)
	}
	return db, backup
}

func pagesOf(db string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error { return sqlite.CopyPages(ctx, db, w) }
}

// A restore that is interrupted while it reads its own file again leaves none.
func TestRestoreIsInterrupted(t *testing.T) {
	_, backup := backUp(t, 2000)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	engine := files
	engine.DropCache = func(string) { cancel(interrupted) }
	to := filepath.Join(t.TempDir(), "restored.db")
	if _, err := transfer.Restore(ctx, backup, to, engine); !errors.Is(err, interrupted) {
		t.Errorf("Restore() = %v, want that it was interrupted", err)
	}
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Every changed bit, and every missing or additional byte, is found.
func TestVerify(t *testing.T) {
	_, backup := backUp(t, 2000)
	whole, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	want := func(what string, content []byte, message string) {
		t.Helper()
		if err := os.WriteFile(damaged, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := transfer.Verify(t.Context(), damaged, files)
		wantSentence(t, err, damaged+message)
		if t.Failed() {
			t.Fatal(what)
		}
	}
	for i := range 300 {
		bit := rand.IntN(8 * len(whole))
		if i < 100 { // the header
			bit = rand.IntN(8 * 100)
		}
		changed := append([]byte{}, whole...)
		changed[bit/8] ^= 1 << (bit % 8)
		want(fmt.Sprint("bit ", bit), changed, " ")
	}
	for _, n := range []int{0, 1, 50, 4096, len(whole) / 2, len(whole) - 93, len(whole) - 1} {
		want(fmt.Sprint(n, " bytes"), whole[:n], " does not end with a checksum")
	}
	want("a byte more", append(whole[:len(whole):len(whole)], 'x'), " does not end with a checksum")
	want("a page less", append(append([]byte{}, whole[:4096]...), whole[8192:]...), " is damaged: its checksum differs")
	want("a text", []byte("hello"), " does not end with a checksum")
}

// A damaged database is found although all pages were copied, and so is a foreign one.
func TestBackupOfDamage(t *testing.T) {
	db, _ := backUp(t, 2000)
	to := filepath.Join(t.TempDir(), "backup")
	for what, content := range map[string]func(context.Context, io.Writer) error{
		"damaged": func(ctx context.Context, w io.Writer) error {
			return sqlite.CopyPages(ctx, db, &changer{w, 5})
		},
		"not a database": func(_ context.Context, w io.Writer) error {
			_, err := w.Write([]byte("hello"))
			return err
		},
		"interrupted": func(ctx context.Context, w io.Writer) error {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(errors.New("interrupted"))
			return sqlite.CopyPages(ctx, db, w)
		},
	} {
		_, err := transfer.Backup(t.Context(), to, files, content)
		wantSentence(t, err, "back up to "+to, strings.Fields(what)[len(strings.Fields(what))-1])
		if strings.Contains(err.Error(), ".partial-") || errors.Is(err, transfer.ErrCopy) != (what != "interrupted") {
			t.Errorf("%s: %v", what, err)
		}
		if names, err := os.ReadDir(filepath.Dir(to)); err != nil || len(names) > 0 {
			t.Errorf("%s: left %v, %v", what, names, err)
		}
	}
}

// changer overwrites one page.
type changer struct {
	io.Writer
	pages int
}

func (c *changer) Write(b []byte) (int, error) {
	if c.pages--; c.pages == 0 {
		b = make([]byte, len(b))
	}
	return c.Writer.Write(b)
}

// An existing file is not replaced, also if it is created at the end.
func TestBackupReplacesNothing(t *testing.T) {
	db, backup := backUp(t, 1)
	_, err := transfer.Backup(t.Context(), backup, files, pagesOf(db))
	wantSentence(t, err, "back up to "+backup+": the file exists; name another one")
	_, err = transfer.Restore(t.Context(), backup, db, files)
	wantSentence(t, err, "restore to "+db+": the file exists; name another one")
	to := filepath.Join(t.TempDir(), "backup")
	_, err = transfer.Backup(t.Context(), to, files, func(ctx context.Context, w io.Writer) error {
		return errors.Join(os.WriteFile(to, []byte("mine"), 0o600), pagesOf(db)(ctx, w))
	})
	wantSentence(t, err, "back up to "+to+": the file exists; name another one")
	if text, err := os.ReadFile(to); string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	if names, err := os.ReadDir(filepath.Dir(to)); err != nil || len(names) != 1 {
		t.Errorf("left %v, %v", names, err)
	}
}
