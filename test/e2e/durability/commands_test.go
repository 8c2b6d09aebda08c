//go:build linux

package durability

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore/test/testkit"
)

// copied is how many pages of the WAL the shared index counts as copied into the file: nBackfill of SQLite.
func copied(t *testing.T, db string) uint32 {
	t.Helper()
	index, err := os.ReadFile(db + "-shm")
	if err != nil || len(index) < 100 {
		t.Fatalf("the index of the WAL has %d bytes, %v", len(index), err)
	}
	return binary.NativeEndian.Uint32(index[96:])
}

// Beside a service, a command that reads makes no system call that changes a file of the database or drops its page
// cache. One that writes appends to the WAL, and does nothing of what a start after a failure needs.
func TestCommandsBesideService(t *testing.T) {
	testkit.Long(t)
	folder := t.TempDir()
	db := filepath.Join(folder, "plants.db")
	s := testkit.Start(t, db)
	create := func(id int) { s.Create(t, fmt.Sprintf(`{"id":%d,"name":%q}`, id, strings.Repeat("x", 60<<10))) }
	create(-1)
	reader, err := sqlite.OpenConn(db, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, text := range []string{"BEGIN", "SELECT count(*) FROM plants"} { // so that the WAL can't be copied as a whole
		if err := sqlitex.ExecuteTransient(reader, text, nil); err != nil {
			t.Fatal(err)
		}
	}
	for id := range 60 { // more than what starts a checkpoint
		create(id)
	}
	testkit.WaitFor(t, "a checkpoint", func() bool { return copied(t, db) > 0 })
	pages := copied(t, db)
	for i, test := range []struct {
		args   string
		writes bool
	}{
		{"token list --db DB", false}, {"doctor --db DB", false},
		{"backup --db DB --to " + filepath.Join(folder, "backup"), false},
		{"copy --from DB --to " + filepath.Join(folder, "copy.db"), false},
		{"token issue --name ci --db DB", true}, {"token update ci --rate 9/s --db DB", true},
		{"token rotate ci --db DB", true}, {"token revoke ci --db DB", true}, {"db migrate --db DB", true},
	} {
		log := filepath.Join(t.TempDir(), fmt.Sprint("strace", i))
		args := append([]string{"-f", "-y", "-o", log, "-e", "signal=none", "-e", "trace=write,pwrite64,pwritev,fsync," +
			"fdatasync,ftruncate,fallocate,fadvise64,unlink,unlinkat,rename,renameat,renameat2", testkit.Binary},
			strings.Fields(strings.ReplaceAll(test.args, "DB", db))...)
		if out, err := exec.Command("strace", args...).CombinedOutput(); err != nil {
			if _, missing := exec.LookPath("strace"); missing != nil {
				testkit.Unavailable(t, "strace: %v", missing)
			}
			t.Fatalf("%s: %v\n%s", test.args, err, out)
		}
		calls, _ := tracedCalls(t, log)
		for _, call := range calls {
			appends := test.writes && strings.Contains(call, db+"-wal>") && !strings.Contains(call, "fadvise64(")
			ignored := strings.Contains(call, "write(1<") || strings.Contains(call, db+"-none") || // see sqlite.checkWritable
				strings.Contains(call, db+".last-backup")
			if strings.Contains(call, db) && !ignored && !appends {
				t.Errorf("%s: %s", test.args, call)
			}
		}
		if now := copied(t, db); now < pages {
			t.Errorf("%s: %d pages of the WAL count as copied, want at least %d", test.args, now, pages)
		}
	}
}
