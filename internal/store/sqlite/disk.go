package sqlite

import (
	"cmp"
	"os"
	"path/filepath"
	"sync/atomic"
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

// diskStats is the state of the database's disk at the last check.
type diskStats struct {
	free   atomic.Int64 // bytes; -1 if they are unknown
	backup atomic.Int64 // Unix time of the last backup; 0 if there is none
}

func (d *diskStats) read(target string) {
	d.free.Store(freeBytes(target))
	if info, err := os.Stat(target + backupSuffix); err == nil {
		d.backup.Store(info.ModTime().Unix())
	}
}
