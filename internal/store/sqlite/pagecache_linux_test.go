package sqlite

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// A file is read ahead if it takes at most half of the memory.
func TestReadAhead(t *testing.T) {
	const size = 3 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for memory, want := range map[int64]int64{2 * size: size, 2*size - 1: 0, 0: 0} {
		if got := readAhead(f, memory, nil); got != want {
			t.Errorf("with %d bytes of memory, %d are read ahead, want %d", memory, got, want)
		}
	}
	quit := make(chan struct{})
	close(quit)
	if got := readAhead(f, 2*size, quit); got == size {
		t.Error("the end of the service does not stop it")
	}
}

// The limit of the control group counts, not only the memory of the machine.
func TestMemorySize(t *testing.T) {
	if got := memorySize(1 << 20); got != 1<<20 {
		t.Errorf("with a limit of 1 MiB, memorySize() = %d", got)
	}
	if got := memorySize(math.MaxInt64); got < 1<<20 || got == math.MaxInt64 {
		t.Errorf("without a limit, memorySize() = %d", got)
	}
}
