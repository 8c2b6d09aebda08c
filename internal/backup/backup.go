// Package backup writes, verifies and restores backups of a SQLite database, also while a service uses it.
//
// A backup is a database file, followed by one line with the SHA-256 of the bytes before it. SQLite ignores the line.
package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"plantstore/internal/machine"
	"plantstore/internal/storage/sqlite"
)

const (
	checksumFormat = "\nplantstore backup, SHA-256 %x\n"
	checksumSize   = int64(len(checksumFormat) - len("%x") + 2*sha256.Size)
	syncBytes      = 8 << 20 // are written between two syncs, so that the sync of a commit waits for little
)

// Write writes a backup of a database to a new file and verifies it. Unless it returns nil, there is no new file.
func Write(ctx context.Context, db, to string) (contents sqlite.Contents, err error) {
	err = create(ctx, to, func(w io.Writer) error {
		sum := sha256.New()
		if err := sqlite.CopyPages(ctx, db, io.MultiWriter(w, sum)); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, checksumFormat, sum.Sum(nil))
		return err
	}, func(temporary string) error {
		contents, err = Verify(ctx, temporary)
		if err != nil && ctx.Err() == nil { // the temporary name is of no use: the file is removed
			err = fmt.Errorf("the copy is not correct; check %s with plantstore doctor --integrity: %s", db,
				strings.ReplaceAll(err.Error(), temporary, "the copy"))
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("back up to %s: %w", to, err)
	}
	return contents, err
}

// Verify reads a whole backup, reports what it contains, and returns an error if a bit of it has changed.
func Verify(ctx context.Context, path string) (contents sqlite.Contents, err error) {
	if err := read(path, &writer{Writer: io.Discard, ctx: ctx}); err != nil {
		return contents, err
	}
	if contents, err = sqlite.Verify(ctx, path); err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return contents, err
}

// Restore writes the database of a backup to a new file, verifies it, and calls prepare with its temporary name. Unless
// it returns nil, there is no new file.
func Restore(
	ctx context.Context, path, to string, prepare func(temporary string, c sqlite.Contents) error,
) (contents sqlite.Contents, err error) {
	err = create(ctx, to, func(w io.Writer) error { return read(path, w) }, func(temporary string) error {
		if contents, err = sqlite.Verify(ctx, temporary); err == nil {
			err = prepare(temporary, contents)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("restore to %s: %w", to, err)
	}
	return contents, err
}

// read writes the database in a backup to w. It returns an error if the checksum is missing or wrong.
func read(path string, w io.Writer) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // opening a pipe could wait forever
		return fmt.Errorf("%s is not a regular file; use the path of a backup", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(h, w), f, max(0, info.Size()-checksumSize)); err != nil {
		return err
	}
	line, err := io.ReadAll(io.LimitReader(f, checksumSize+1))
	prefix, _, _ := strings.Cut(checksumFormat, "%")
	switch {
	case err != nil:
	case !strings.HasPrefix(string(line), prefix):
		err = fmt.Errorf("%s does not end with a checksum: it is truncated, or was not written by plantstore backup", path)
	case string(line) != fmt.Sprintf(checksumFormat, h.Sum(nil)):
		err = fmt.Errorf("%s is damaged: its checksum differs; use another backup", path)
	}
	return err
}

var errExists = errors.New("the file exists; name another one")

// create creates a file that only its owner can read. It has its name only once it is complete, synced and accepted by
// check, which gets its temporary name. An existing file is never replaced.
func create(ctx context.Context, path string, write func(io.Writer) error, check func(temporary string) error) error {
	if _, err := os.Lstat(path); err == nil {
		return errExists
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	w := bufio.NewWriterSize(&writer{Writer: f, ctx: ctx, sync: f.Sync}, 1<<20)
	if err = write(w); err == nil {
		err = errors.Join(w.Flush(), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = check(f.Name())
	}
	if err != nil {
		return err
	}
	err = os.Link(f.Name(), path) // unlike Rename, it does not replace a file
	if errors.Is(err, fs.ErrExist) {
		return errExists
	}
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) { // a file system without links
		err = os.Rename(f.Name(), path)
	}
	return errors.Join(err, machine.SyncFolder(path))
}

// writer is a Writer that fails when ctx ends, and calls sync after each syncBytes.
type writer struct {
	io.Writer
	ctx      context.Context
	sync     func() error
	unsynced int
}

func (w *writer) Write(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.Writer.Write(b)
	if w.unsynced += n; err == nil && w.sync != nil && w.unsynced >= syncBytes {
		w.unsynced = 0
		err = w.sync()
	}
	return n, err
}
