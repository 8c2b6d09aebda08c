package transfer

import (
	"bufio"
	"bytes"
	"cmp"
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
	"time"

	"plantstore/internal/machine"
)

// A backup is a database file, followed by one line with the SHA-256 of the bytes before it. SQLite ignores the line.
const (
	checksumFormat = "\nplantstore backup, SHA-256 %x\n"
	checksumSize   = int64(len(checksumFormat) - len("%x") + 2*sha256.Size)
	syncBytes      = 8 << 20 // are written between two syncs, so that the sync of a commit waits for little
)

// A backup must leave the disk and the processors to the service next to it. A low priority does not suffice: beside a
// process that runs only on an idle processor, creates fell to 0.7 of their rate. So a backup rests these times as long
// as it works: less while it copies, because the WAL can't restart meanwhile. While it verifies, the goroutine that
// reads ahead goes on during a rest until its buffer is full, and SQLite's integrity check never rests.
const (
	copyRest    = 3
	verifyRest  = 7
	workTime    = 5 * time.Millisecond   // at least, between two rests
	maxRest     = 100 * time.Millisecond // so that an interrupt is seen soon
	pacedPlants = 1000                   // are read between two checks of the time
)

// partialSuffix matches what is appended to the name of a file until it is complete.
const partialSuffix = ".partial-*"

// Engine opens database files.
type Engine struct {
	Open      func(path string) (Database, error) // a file that nothing changes
	DropCache func(path string)                   // so that the file is read from the disk
}

// Database is an open file.
type Database interface {
	Source
	CountTokens(ctx context.Context) (int, error)
	CheckIntegrity(ctx context.Context) error
	Close() error
}

// ErrCopy is in the chain of an error of Backup if all pages were copied, but the copy is not a correct database.
var ErrCopy = errors.New("the copy of the database is not correct")

// Backup writes a backup to a new file and verifies it. content writes the database file. Unless Backup returns nil,
// there is no new file.
func Backup(
	ctx context.Context, to string, engine Engine, content func(context.Context, io.Writer) error,
) (report Report, err error) {
	err = create(ctx, to, engine, func(w io.Writer) error {
		sum := sha256.New()
		if err := content(ctx, io.MultiWriter(&pacer{Writer: w, rest: copyRest}, sum)); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, checksumFormat, sum.Sum(nil))
		return err
	}, func(temporary string) error {
		report, _, _, err = verify(ctx, temporary, engine, verifyRest)
		if err != nil && ctx.Err() == nil { // the temporary name is of no use: the file is removed
			err = fmt.Errorf("%w: %s", ErrCopy, strings.ReplaceAll(err.Error(), temporary, "the copy"))
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("back up to %s: %w", to, err)
	}
	return report, err
}

// Verify reads a whole backup, reports what it contains, and returns an error if a bit of it has changed.
func Verify(ctx context.Context, path string, engine Engine) (report Report, err error) {
	report, _, _, err = verify(ctx, path, engine, 0)
	return report, err
}

// verify also returns the checksum of the backup and the size of its database.
func verify(
	ctx context.Context, path string, engine Engine, rest time.Duration,
) (report Report, sum []byte, size int64, err error) {
	if sum, size, err = checksum(ctx, path, rest); err != nil {
		return report, nil, 0, err
	}
	db, err := engine.Open(path)
	if err != nil {
		return report, nil, 0, fmt.Errorf("open %s: %w", path, err)
	}
	report, err = inspect(ctx, db, rest)
	if err = errors.Join(err, db.Close()); err != nil {
		err = fmt.Errorf("read %s: %w", path, cmp.Or(context.Cause(ctx), err))
	}
	return report, sum, size, err
}

// inspect checks the integrity of a database and reports what it contains.
func inspect(ctx context.Context, db Database, rest time.Duration) (report Report, err error) {
	if err := db.CheckIntegrity(ctx); err != nil {
		return report, err
	}
	names, err := db.Stores(ctx)
	if err != nil {
		return report, err
	}
	for _, name := range names {
		h, plants, pace := newHasher(), read(ctx, db, "backup", name), pacer{rest: rest}
		for p := plants.next(); p != nil; p = plants.next() {
			h.add(p)
			if h.plants%pacedPlants == 0 {
				pace.pause()
			}
		}
		if plants.err != nil {
			return report, plants.err
		}
		report.Stores = append(report.Stores, Store{Name: name, Plants: h.plants, Hash: h.sum()})
	}
	report.Tokens, err = db.CountTokens(ctx)
	return report, err
}

// Restore verifies a backup and writes its database to a new file. Unless Restore returns nil, there is no new file.
func Restore(ctx context.Context, path, to string, engine Engine) (report Report, err error) {
	report, sum, size, err := verify(ctx, path, engine, 0)
	if err != nil {
		return report, err
	}
	err = create(ctx, to, engine, func(w io.Writer) error {
		return copyBytes(w, path, size)
	}, func(temporary string) error {
		copied := sha256.New()
		err := copyBytes(&syncer{ctx: ctx, Writer: copied}, temporary, size)
		if err == nil && !bytes.Equal(copied.Sum(nil), sum) {
			err = errors.New("the disk does not return what was written; check it")
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("restore to %s: %w", to, err)
	}
	return report, err
}

// checksum returns the checksum of a backup and the size of its database, or an error if the checksum is wrong.
func checksum(ctx context.Context, path string, rest time.Duration) (sum []byte, size int64, err error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // opening a FIFO would block, and a device may have no end
		err = fmt.Errorf("%s is not a regular file; use the path of a backup", path)
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	size = max(0, info.Size()-checksumSize)
	h := sha256.New()
	if _, err := io.CopyN(&pacer{Writer: &syncer{ctx: ctx, Writer: h}, rest: rest}, f, size); err != nil {
		return nil, 0, err
	}
	line, err := io.ReadAll(io.LimitReader(f, checksumSize+1))
	prefix, _, _ := strings.Cut(checksumFormat, "%")
	switch sum = h.Sum(nil); {
	case err != nil:
	case !strings.HasPrefix(string(line), prefix):
		err = fmt.Errorf("%s does not end with a checksum: it is truncated, or was not written by plantstore backup", path)
	case string(line) != fmt.Sprintf(checksumFormat, sum):
		err = fmt.Errorf("%s is damaged: its checksum differs; use another backup", path)
	}
	return sum, size, err
}

func copyBytes(w io.Writer, path string, n int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, f, n)
	return err
}

var errExists = errors.New("the file exists; name another one")

// create creates a file that only its owner can read. It has its name only once it is complete, synced and accepted by
// check, which gets its temporary name. An existing file is never replaced.
func create(
	ctx context.Context, path string, engine Engine, write func(io.Writer) error, check func(temporary string) error,
) error {
	if _, err := os.Lstat(path); err == nil {
		return errExists
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+partialSuffix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	w := bufio.NewWriterSize(&syncer{f, ctx, f.Sync, 0}, 1<<20)
	if err = write(w); err == nil {
		err = errors.Join(w.Flush(), f.Sync(), machine.SyncFolder(path))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	engine.DropCache(f.Name())
	if err := check(f.Name()); err != nil {
		return err
	}
	err = os.Link(f.Name(), path) // unlike Rename, it does not replace a file
	if errors.Is(err, fs.ErrExist) {
		return errExists
	}
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) { // a file system without links
		if _, err := os.Lstat(path); err == nil {
			return errExists
		}
		err = os.Rename(f.Name(), path)
	}
	return errors.Join(err, machine.SyncFolder(path))
}

// WriteNew writes a new file that only its owner can read. It has its name only once it is complete and on disk.
func WriteNew(ctx context.Context, path string, write func(io.Writer) error) error {
	return create(ctx, path, Engine{DropCache: func(string) {}}, write, func(string) error { return nil })
}

// syncer is a Writer that fails when ctx ends, and calls sync after each syncBytes.
type syncer struct {
	io.Writer
	ctx      context.Context
	sync     func() error
	unsynced int
}

func (s *syncer) Write(b []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	n, err := s.Writer.Write(b)
	if s.unsynced += n; err == nil && s.sync != nil && s.unsynced >= syncBytes {
		s.unsynced = 0
		err = s.sync()
	}
	return n, err
}

// pacer is a Writer that rests: rest times as long as the work since the last rest took.
type pacer struct {
	io.Writer
	rest  time.Duration
	since time.Time
}

func (p *pacer) Write(b []byte) (int, error) {
	p.pause()
	return p.Writer.Write(b)
}

func (p *pacer) pause() {
	now := time.Now()
	if p.since.IsZero() {
		p.since = now
	}
	if worked := now.Sub(p.since); worked >= workTime {
		time.Sleep(min(worked*p.rest, maxRest))
		p.since = time.Now()
	}
}
