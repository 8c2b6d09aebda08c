package sqlite

import (
	"testing"
	"testing/synctest"
	"time"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite sleeps with time.Sleep, which follows the fake clock of synctest. A system call would not.
func TestSQLiteSleepsInGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tls := libc.NewTLS()
		defer tls.Close()
		began := time.Now()
		sqlite3.Xsqlite3_sleep(tls, 2000)
		if slept := time.Since(began); slept != 2*time.Second {
			t.Errorf("sqlite3_sleep(2000) took %v of the fake clock, want 2s", slept)
		}
	})
}
