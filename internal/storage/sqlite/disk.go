package sqlite

import (
	"cmp"
	"os"
	"path/filepath"
	"time"
)

// backupSuffix is appended to the path of a database for a file that records the last backup. The modification time of
// that file is when the backup started.
const backupSuffix = ".last-backup"

// RecordBackup records the name of a new backup and when it started, for the metrics of serve.
func RecordBackup(path, backup string, started time.Time) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	record := target + backupSuffix
	return cmp.Or(os.WriteFile(record, []byte(backup+"\n"), 0o600), os.Chtimes(record, started, started))
}

// disk is the file system of a file, which is known on Linux only.
type disk struct {
	level, danger string // of a finding, if plants can be lost; otherwise empty
	free          int64  // bytes that this user can still write; -1 if they are unknown
}

const (
	inMemory = "is in memory: a reboot loses every plant; " + moveAway
	moveAway = "move the database to a local disk"
)

// InMemory reports whether a file is on a file system that a restart of the machine empties.
func InMemory(path string) bool { return statDisk(path).danger == inMemory }
