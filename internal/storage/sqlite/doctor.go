package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/storage"
)

const (
	minSpace = 1 << 20   // free bytes below which the disk counts as full
	lowSpace = 256 << 20 // free bytes below which an operator should act
)

// Diagnose checks a database file, its folder and its disk. The database may be in use, or one that Open refuses.
// It changes nothing, except that SQLite creates the index of a WAL that has none. With integrity it reads the whole
// file.
func Diagnose(ctx context.Context, path string, integrity bool) (found storage.Findings) {
	target, info, err := findFile(path)
	if err != nil {
		found.Add("file", "problem", "%s: %v; check --db", path, err)
		return found
	}
	found.Add("file", "ok", "%s, %.1f MiB", target, float64(info.Size())/(1<<20))
	diagnosePermissions(&found, target)
	err = read(ctx, target, openUnchanged, func(conn *sqlite.Conn) error {
		return diagnoseContent(&found, conn, integrity)
	})
	if err != nil {
		found.Add("schema", "problem", "%v", err)
	}
	diagnoseFolder(&found, filepath.Dir(target))
	return found
}

// diagnosePermissions checks that this user, which should be the user of the service, can use the files, and that no
// other can replace them. The modes of the files need no check: serve restricts them to their owner.
func diagnosePermissions(found *storage.Findings, target string) {
	for _, name := range []string{target, target + walSuffix, target + shmSuffix} {
		if err := checkAccess(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			found.Add("permissions", "problem", "this user can't read and write %s (%v); run plantstore as the user of the "+
				"service, make that user the owner of the file, and mount its disk for writing", name, err)
		}
	}
	folder := filepath.Dir(target)
	if info, err := os.Stat(folder); err == nil && info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0 {
		found.Add("permissions", "problem", "other users can replace files in %s; run chmod go-w %[1]s", folder)
	}
	found.Passed("permissions", "this user can use the files, and no other can replace them")
}

// diagnoseContent reads the database. The error that it returns is about the schema.
func diagnoseContent(found *storage.Findings, conn *sqlite.Conn, integrity bool) error {
	steps, applied, err := schemaSteps(conn)
	if err != nil {
		return err
	}
	if applied == 0 {
		found.Add("schema", "warning", "the file is empty; serve creates a new database in it: if it had plants, restore a "+
			"backup")
		return nil
	}
	if applied < len(steps) {
		found.Add("schema", "warning", "version %d is older than %d, so the tables were not checked; make a backup, "+
			"and run plantstore db migrate --db", applied, len(steps))
	} else {
		problems, err := tableProblems(conn)
		if err != nil {
			return err
		}
		for _, p := range problems {
			found.Add("tables", "problem", "%s", p)
		}
		found.Passed("tables", "no unsafe changes")
		found.Passed("schema", "version %d", applied)
	}
	if !integrity {
		return nil
	}
	contents, err := verify(conn)
	if err != nil {
		found.Add("integrity", "problem", "%v", translate(err))
		return nil
	}
	found.Passed("integrity", "every page is intact: %d plants, %d tokens", contents.Plants, contents.Tokens)
	return nil
}

// diagnoseFolder checks the file system of a folder.
func diagnoseFolder(found *storage.Findings, folder string) {
	disk := statDisk(folder)
	if disk.free < 0 {
		return
	}
	if disk.danger != "" {
		found.Add("file system", disk.level, "%s %s", folder, disk.danger)
	}
	found.Passed("file system", "%s is on a local disk", folder)
	switch {
	case disk.free < minSpace:
		found.Add("space", "problem", "the disk is full, so serve can only read; free at least %d MiB", lowSpace>>20)
	case disk.free < lowSpace:
		found.Add("space", "warning", "only %d MiB are free; free at least %d MiB", disk.free>>20, lowSpace>>20)
	default:
		found.Passed("space", "%d MiB are free", disk.free>>20)
	}
}
