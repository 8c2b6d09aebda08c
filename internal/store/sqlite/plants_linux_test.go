package sqlite_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/store/storetest"
	"plantstore/internal/testkit/missing"
)

// A batch writes to the WAL and to nothing else. A temporary file would double what it writes, and could not be created
// in a container where only the folder of the database is writable.
func TestBatchWritesOnlyWAL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	s := open(t, path)
	s.AllowTemporaryFiles(t)
	const (
		batch = 64
		apart = 100 // stored plants from one of the batch to the next: more than a page has
	)
	var stored, between []plant.Record
	for i := range int64(batch * apart) {
		stored = append(stored, storetest.Record("main", 2*i, "Monstera", "climber"))
		if i%apart == 0 {
			between = append(between, storetest.Record("main", 2*i+1, "Monstera", "climber"))
		}
	}
	create := func(plants []plant.Record) {
		t.Helper()
		if _, err := s.CreateBatch(t.Context(), plants); err != nil {
			t.Fatal(err)
		}
	}
	create(stored)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := writtenByThread(t)
	create(between)
	const frame = 24 + 2048 // bytes of a page in the WAL, with its header
	switch pages := (writtenByThread(t) - before) / frame; {
	case pages < batch:
		t.Errorf("the batch of %d wrote %d pages, so its plants share pages", batch, pages)
	case pages > batch*5/4: // a few pages may have been full
		t.Errorf("the batch of %d, each plant in a page of its own, wrote as much as %d pages", batch, pages)
	}
}

// writtenByThread returns how many bytes the system calls of this thread have written.
func writtenByThread(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		missing.Report(t, "the kernel does not count what a thread writes: %v", err)
	}
	wchar := regexp.MustCompile(`wchar: (\d+)`).FindSubmatch(text)
	if wchar == nil {
		t.Fatalf("no count of written bytes in:\n%s", text)
	}
	n, err := strconv.ParseInt(string(wchar[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
