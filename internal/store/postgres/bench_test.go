package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/store/postgres/pgtest"
)

// BenchmarkCreateBatch creates new plants; one op is one batch.
func BenchmarkCreateBatch(b *testing.B) {
	var id atomic.Int64
	for _, lanes := range []int{1, 4} {
		for _, size := range []int{1, 8, 32, 128} {
			b.Run(fmt.Sprintf("lanes=%d/size=%d", lanes, size), func(b *testing.B) {
				s, err := Open(b.Context(), pgtest.Database(b), Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				var wg sync.WaitGroup
				for range lanes {
					wg.Go(func() {
						tag := "a tag"
						batch := make([]plant.Record, size)
						for left.Add(-1) >= 0 {
							last := id.Add(int64(size))
							for i := range batch {
								p := plant.New{ID: last - int64(i), Plant: plant.Plant{Name: "Monstera deliciosa", Tag: &tag}}
								batch[i] = plant.Record{Store: "main", New: p}
							}
							if _, err := s.CreateBatch(context.Background(), batch); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "plants/s")
			})
		}
	}
}
