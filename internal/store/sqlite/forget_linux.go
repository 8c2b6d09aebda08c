package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget makes the kernel read a file from the disk again. After a sync that failed it goes on showing what was
// written and calls it clean, though the disk does not have it: another sync has nothing to do, and what is then
// written over or behind it may be lost with it, whatever its sync says. What was written and not synced yet stays.
func forget(path string) {
	f, err := os.Open(path)
	if err != nil {
		return // who opens it in earnest says why
	}
	defer f.Close()
	unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
