package listen

import (
	"math"
	"testing"

	"plantstore/internal/machine"
)

func TestDefaultMax(t *testing.T) {
	for _, c := range []struct {
		processors int
		files      uint64
		memory     int64
		want       int
	}{
		{2, math.MaxUint64, math.MaxInt64, 1024},
		{1, math.MaxUint64, math.MaxInt64, 512},
		{8, 1 << 20, math.MaxInt64, 4096},
		{64, 1 << 20, math.MaxInt64, 4096},
		{64, 8192, math.MaxInt64, 4096},
		{64, 1032, math.MaxInt64, 860},
		{64, 1 << 20, 256 << 20, 2048},
		{2, 64, math.MaxInt64, 24},
		{2, 10, math.MaxInt64, 4},
		{2, 1 << 20, 1 << 20, 8},
		{2, 1 << 20, 1, 4},
	} {
		got := DefaultMax(machine.Limits{Processors: c.processors, Files: c.files, Memory: c.memory})
		if got != c.want {
			t.Errorf("DefaultMax(%d, %d, %d) = %d, want %d", c.processors, c.files, c.memory, got, c.want)
		}
	}
}

// Connections, refusals and other files together never exceed the files, however many there are.
func TestSpareFiles(t *testing.T) {
	for _, c := range []struct {
		conns int
		files uint64
		want  int
	}{
		{1024, math.MaxUint64, 4096}, {1024, 1024 + 32 + 64 + 4096, 4096}, {1024, 1024 + 32 + 64 + 4095, 4095},
		{860, 1032, 108}, {24, 64, 4}, {4, 10, 4}, {16384, math.MaxUint64, 4},
	} {
		if got := spareFiles(c.conns, c.files); got != c.want {
			t.Errorf("spareFiles(%d, %d) = %d, want %d", c.conns, c.files, got, c.want)
		}
	}
	for files := uint64(100); files < 6000; files += 7 {
		conns := DefaultMax(machine.Limits{Processors: 64, Files: files, Memory: math.MaxInt64})
		if total := conns + spareFiles(conns, files) + HealthMax(files) + otherFiles; uint64(total) > files {
			t.Fatalf("%d files: %d connections and %d refusals need %d", files, conns, spareFiles(conns, files), total)
		}
	}
}

func TestHealthMax(t *testing.T) {
	for files, want := range map[uint64]int{0: 4, 64: 4, 159: 4, 160: 5, 1024: 32, 2048: 64, math.MaxUint64: 64} {
		if got := HealthMax(files); got != want {
			t.Errorf("HealthMax(%d) = %d, want %d", files, got, want)
		}
	}
}
