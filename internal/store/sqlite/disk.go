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
	f, err := os.CreateTemp(filepath.Dir(target), filepath.Base(target)+backupSuffix+"-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(backup + "\n")
	err = cmp.Or(err, f.Close(), os.Chtimes(f.Name(), started, started), os.Rename(f.Name(), target+backupSuffix))
	if err != nil {
		os.Remove(f.Name())
	}
	return err
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
