package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/store"
)

const (
	minSpace  = 1 << 20   // free bytes below which the disk counts as full
	lowSpace  = 256 << 20 // free bytes below which an operator should act
	firstYear = 2026      // of this program

	maxCounted = 256 // MiB of a database whose plants are always counted, which takes seconds
	moveAway   = "move the database to a local disk"
)

// Diagnose checks a database file, its folder and the machine. The database may be in use, or one that Open refuses.
// It changes nothing, except that SQLite creates the index of a WAL that has none. With integrity it reads the whole
// file.
func Diagnose(ctx context.Context, path string, integrity bool) (found store.Findings) {
	target, info, err := findFile(path)
	switch {
	case errors.Is(err, errNotRegular):
		found.Add("file", "problem", "%s: %v", path, err)
		return found
	case err != nil:
		target = path
		found.Add("file", "problem", "%s: %v; check --db", path, err)
	case info.Size() == 0:
		found.Add("file", "warning", "%s is empty; serve creates a new database in it: if it had plants, restore a backup",
			target)
	default:
		found.Passed("file", "%s, %.1f MiB, and %.1f MiB in its WAL", target, mebibytes(target), mebibytes(target+walSuffix))
	}
	if readable := diagnoseAccess(&found, target); readable && err == nil && info.Size() > 0 {
		diagnoseContent(ctx, &found, target, integrity)
	}
	diagnoseFiles(&found, target)
	diagnoseDisk(&found, filepath.Dir(target))
	if err == nil {
		found.Passed("permissions", "only the owner can access the files")
	}
	if now := time.Now(); now.Year() < firstYear {
		found.Add("clock", "problem", "the clock of this machine shows %s; set it", now.Format(time.DateTime))
	}
	found.Passed("clock", "no file has a time in the future")
	return found
}

// diagnoseContent reads the database. It creates no file next to a database without a WAL.
func diagnoseContent(ctx context.Context, found *store.Findings, target string, integrity bool) {
	conn, err := openUnchanged(target)
	if err != nil {
		found.Add("schema", "problem", "%v", translate(err))
		return
	}
	defer conn.Close()
	conn.SetInterrupt(ctx.Done())
	steps, applied, err := schemaSteps(conn)
	switch {
	case err != nil:
		found.Add("schema", "problem", "%v", translate(err))
		return
	case applied < len(steps):
		found.Add("schema", "warning", "version %d is older than %d, so the tables were not checked; make a backup, "+
			"and run plantstore db migrate --db", applied, len(steps))
	default:
		problems, err := tableProblems(conn)
		if err != nil {
			problems = append(problems, translate(err).Error())
		}
		for _, p := range problems {
			found.Add("tables", "problem", "%s", p)
		}
		found.Passed("tables", "no unsafe changes")
	}
	found.Passed("schema", "version %d", applied)
	found.Passed("durability", "serve writes with WAL and synchronous=FULL")
	if applied > 0 {
		diagnoseContents(found, conn, integrity || mebibytes(target)+mebibytes(target+walSuffix) <= maxCounted)
	}
	if !integrity {
		return
	}
	if text, err := firstText(conn, "PRAGMA integrity_check(1)"); err != nil {
		found.Add("integrity", "problem", "%v", translate(err))
	} else if text != "ok" {
		found.Add("integrity", "problem", "the database is damaged, restore a backup: %s", text)
	}
	found.Passed("integrity", "every page is intact")
}

// diagnoseContents reports the number of tokens and, if count is set, of plants.
func diagnoseContents(found *store.Findings, conn *sqlite.Conn, count bool) {
	tokens, err := number(conn, "SELECT count(*) FROM tokens")
	plants := "plants not counted; use --integrity to count them"
	if err == nil && count {
		var n int64
		n, err = number(conn, "SELECT count(*) FROM plants")
		plants = fmt.Sprintf("%d plants", n)
	}
	if err != nil {
		found.Add("contents", "problem", "%v", translate(err))
		return
	}
	found.Add("contents", "ok", "%s, %d tokens", plants, tokens)
}

// mebibytes returns the size of a file, or 0 if there is none.
func mebibytes(file string) float64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return float64(info.Size()) / (1 << 20)
}

// firstText returns the first column of the first row.
func firstText(conn *sqlite.Conn, text string) (string, error) {
	for row, err := range query(conn, text) {
		if err != nil {
			return "", err
		}
		return row.ColumnText(0), nil
	}
	return "", nil
}

// diagnoseFiles checks the files of the database, and those that are left next to them.
func diagnoseFiles(found *store.Findings, target string) {
	folder := filepath.Dir(target)
	if info, err := os.Stat(folder); err == nil && info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0 {
		found.Add("permissions", "problem", "other users can replace files in %s; run chmod go-w %[1]s", folder)
	}
	for _, suffix := range []string{"", walSuffix, shmSuffix, "-journal"} {
		file := target + suffix
		info, err := os.Stat(file)
		if err != nil {
			continue
		}
		if info.Mode().Perm()&0o077 != 0 {
			found.Add("permissions", "warning", "other users can access %s; run chmod 600 %[1]s", file)
		}
		if ahead := time.Until(info.ModTime()); ahead > time.Minute {
			found.Add("clock", "warning", "the time of %s is %v in the future; check the clock of this machine", file,
				ahead.Round(time.Second))
		}
	}
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		if strings.Contains(e.Name(), PartialSuffix) {
			found.Add("files", "warning", "%s is incomplete; remove it unless a backup or restore is running",
				filepath.Join(folder, e.Name()))
		}
	}
	if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
		if err := CheckAbsent(target); err != nil {
			found.Add("files", "problem", "the database is missing, but %v", err)
		}
	}
	found.Passed("files", "no file is left from an interrupted command")
}
