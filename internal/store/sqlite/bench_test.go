package sqlite_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/store/storetest"
)

// cpu returns the processor time that this process has used, in nanoseconds.
func cpu(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func BenchmarkCreateBatch(b *testing.B) {
	for _, size := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "plants.db"))
			batch := make([]plant.Record, size)
			id := int64(0)
			before := cpu(b)
			for b.Loop() {
				for i := range batch {
					id++
					batch[i] = storetest.Record("main", id*7919%1_000_003, "Monstera deliciosa", "indoor")
				}
				if _, err := s.CreateBatch(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(id), "cpu-ns/row")
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "plants.db"))
	if _, err := s.CreateBatch(b.Context(), []plant.Record{storetest.Record("main", 1, "Fern", "shade")}); err != nil {
		b.Fatal(err)
	}
	before := cpu(b)
	for b.Loop() {
		if _, err := s.Get(b.Context(), "main", 1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/get")
}

func BenchmarkList(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "plants.db"))
	const plants = 1000
	batch := make([]plant.Record, plants)
	for i := range batch {
		batch[i] = storetest.Record("main", int64(i), "Monstera deliciosa", "indoor")
	}
	if _, err := s.CreateBatch(b.Context(), batch); err != nil {
		b.Fatal(err)
	}
	before := cpu(b)
	for b.Loop() {
		if page, err := s.List(b.Context(), "main", nil, plants); err != nil || len(page) != plants {
			b.Fatal(len(page), err)
		}
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/list")
}
