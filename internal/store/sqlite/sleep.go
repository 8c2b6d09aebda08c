package sqlite

import (
	"sync"
	"time"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// releaseSleepers makes SQLite sleep with time.Sleep, which lets other goroutines run at once.
//
// SQLite sleeps before it tries to get a lock of the WAL again. In a system call it would keep its P until the runtime
// notices, and the goroutine with the lock may be in the queue of that P: both waited, for up to 25 ms.
var releaseSleepers = sync.OnceFunc(func() {
	tls := libc.NewTLS()
	defer tls.Close()
	address := sqlite3.Xsqlite3_vfs_find(tls, 0) // of memory that Go does not manage
	system := *(**sqlite3.Tsqlite3_vfs)(unsafe.Pointer(&address))
	system.FxSleep = *(*uintptr)(unsafe.Pointer(&struct {
		f func(tls *libc.TLS, vfs uintptr, microseconds int32) int32
	}{sleep}))
})

func sleep(_ *libc.TLS, _ uintptr, microseconds int32) (slept int32) {
	time.Sleep(time.Duration(microseconds) * time.Microsecond)
	return microseconds
}
