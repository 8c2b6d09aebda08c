package sqlite

import (
	"runtime"
	"time"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// sleepInGo makes SQLite sleep in Go.
//
// SQLite sleeps before it tries again to get a lock of the WAL. In a system call its goroutine would keep its P until
// the runtime retakes it, and the goroutine that holds the lock may be in the queue of that P: in a trace, both waited
// for up to 25 ms.
func sleepInGo() {
	tls := libc.NewTLS()
	defer tls.Close()
	function := *(*uintptr)(unsafe.Pointer(&struct {
		f func(tls *libc.TLS, vfs uintptr, microseconds int32) int32
	}{sleep}))
	for address := sqlite3.Xsqlite3_vfs_find(tls, 0); address != 0; { // of global variables, which do not move
		vfs := *(**sqlite3.Tsqlite3_vfs)(unsafe.Pointer(&address))
		vfs.FxSleep = function
		address = vfs.FpNext
	}
}

func sleep(_ *libc.TLS, _ uintptr, microseconds int32) (slept int32) {
	d := time.Duration(microseconds) * time.Microsecond
	if d >= time.Millisecond {
		time.Sleep(d)
		return microseconds
	}
	for began := time.Now(); ; { // time.Sleep takes a millisecond at least in a process that is idle
		runtime.Gosched()
		if time.Since(began) >= d {
			return microseconds
		}
	}
}
