package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// dropPageCaches makes the kernel read the database and its WAL from the disk again.
//
// After a failed fsync, Linux keeps the written pages in memory and marks them clean although the disk does not
// have them. Reads still return them, another fsync succeeds without writing them, and what is written after or
// over them may be lost with them. So the process that saw the failure stops writing (see writer.stop), and the
// next one starts from what is on disk. Pages that are written and not synced yet stay in memory.
func dropPageCaches(path string) {
	DropPageCache(path)
	DropPageCache(path + walSuffix)
}

// DropPageCache makes the kernel read a file from the disk again. Pages that are not synced stay in memory.
func DropPageCache(path string) {
	f, err := os.Open(path)
	if err != nil {
		return // opening the database reports it
	}
	defer f.Close()
	unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
