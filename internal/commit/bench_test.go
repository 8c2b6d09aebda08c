package commit_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"plantstore/internal/commit"
	"plantstore/internal/plant"
	"plantstore/internal/store/sqlite"
)

// BenchmarkCreate measures the durable path without HTTP: batches, SQLite, fsync.
func BenchmarkCreate(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			st, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "plants.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			tag := "climber"
			var id atomic.Int64
			measure(b, st, max(1, clients/2), func() plant.Record {
				return plant.Record{Store: "main", New: plant.New{
					ID: id.Add(1), Plant: plant.Plant{Name: "Monstera deliciosa", Tag: &tag},
				}}
			})
		})
	}
}

// BenchmarkBatches measures the path with a store that does nothing.
func BenchmarkBatches(b *testing.B) {
	measure(b, emptyStore{}, 32, func() plant.Record { return record(1) })
}

func measure(b *testing.B, s creator, parallelism int, next func() plant.Record) {
	c, stop := run(s, nil, commit.Options{})
	defer stop()
	b.ReportAllocs()
	b.SetParallelism(parallelism)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if out, err := c.Commit(context.Background(), next()); err != nil || out != plant.Created {
				b.Errorf("Commit() = %v, %v", out, err)
				return
			}
		}
	})
}

type emptyStore struct{}

func (emptyStore) CreateBatch(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	return slices.Repeat([]plant.Outcome{plant.Created}, len(plants)), nil
}
