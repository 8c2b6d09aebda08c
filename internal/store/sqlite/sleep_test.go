package sqlite

import (
	"testing"
	"testing/synctest"
	"time"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite sleeps with time.Sleep, which takes no time in a bubble; a system call would.
func TestSleepersAreReleased(t *testing.T) {
	releaseSleepers()
	synctest.Test(t, func(t *testing.T) {
		tls := libc.NewTLS()
		defer tls.Close()
		began := time.Now()
		sqlite3.Xsqlite3_sleep(tls, 2000)
		if slept := time.Since(began); slept != 2*time.Second {
			t.Errorf("time.Sleep took %v of the 2 s that SQLite slept", slept)
		}
	})
}
