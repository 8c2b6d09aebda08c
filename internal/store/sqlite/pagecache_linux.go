package sqlite

import (
	"os"
	"time"

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

// inUse reports whether another process has a database open, and thus a lock on the file. Call it before this process
// opens the database, because it closes a descriptor of the file, which releases all locks of this process.
func inUse(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
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

// readAhead makes the kernel read a file into the page cache, at 1 GB/s at most, unless it is larger than half of the
// memory. After dropPageCaches each create with a random id would otherwise wait for the disk to read a page. It
// returns the offset that it reached, in steps of 1 MiB.
//
// FADV_WILLNEED caches single pages. Sequential reads would cache larger groups of pages, and after those a create with
// a random id took 1.3 to 1.6 times the CPU.
func readAhead(f *os.File, memory int64, quit <-chan struct{}) (offset int64) {
	const step = 1 << 20
	info, err := f.Stat()
	if err != nil || info.Size() > memory/2 {
		return 0
	}
	for ; offset < info.Size(); offset += step {
		unix.Fadvise(int(f.Fd()), offset, step, unix.FADV_WILLNEED)
		select {
		case <-time.After(time.Millisecond):
		case <-quit:
			return offset
		}
	}
	return offset
}

// memorySize returns the memory of the machine, or the limit of the control group if that is lower, because that
// limit includes the page cache. It returns 0 if the size is unknown.
func memorySize(limit int64) int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return min(int64(info.Totalram)*int64(info.Unit), limit)
}

// syncData is f.Sync without the times of the file, for which the file system would write its journal.
func syncData(f *os.File) (err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Fdatasync(int(f.Fd()))
	}
	return err
}
