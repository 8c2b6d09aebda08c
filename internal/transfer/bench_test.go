package transfer_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/store/storetest"
	"plantstore/internal/transfer"
)

// engines open a new database each.
var engines = map[string]func(t testing.TB) store.Store{
	"sqlite": func(t testing.TB) store.Store {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "plants.db"))
		return closeLater(t, s, err)
	},
	"postgres": func(t testing.TB) store.Store {
		s, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{})
		return closeLater(t, s, err)
	},
}

// citus opens a new database on a Citus cluster, distributed by a column.
func citus(t testing.TB, by string) store.Store {
	t.Helper()
	url := pgtest.SharedCluster(t).Database(t)
	if err := postgres.Distribute(t.Context(), url, postgres.Distribution{By: by}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), url, postgres.Options{})
	return closeLater(t, s, err)
}

func closeLater(t testing.TB, s store.Store, err error) store.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fill creates n plants in a store.
func fill(t testing.TB, s store.Store, name string, n int) {
	t.Helper()
	var batch []plant.Record
	for id := range n {
		batch = append(batch, storetest.Record(name, int64(id), fmt.Sprintf("Monstera deliciosa %d", id), "climber"))
		if len(batch) == 10_000 || id == n-1 {
			if _, err := s.CreateBatch(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
	}
}

// cpu returns the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkCopy copies 500,000 plants with the verification.
func BenchmarkCopy(b *testing.B) {
	const n = 500_000
	openers := maps.Clone(engines)
	if pgtest.HasCitus() {
		openers["citus by id"] = func(t testing.TB) store.Store { return citus(t, "id") }
		openers["citus by store"] = func(t testing.TB) store.Store { return citus(t, "store") }
	}
	for _, from := range []string{"sqlite", "postgres"} {
		source := engines[from](b)
		fill(b, source, "main", n)
		for _, to := range slices.Sorted(maps.Keys(openers)) {
			b.Run(from+" to "+to, func(b *testing.B) {
				var took, busy, checked time.Duration
				for range b.N {
					target := openers[to](b)
					start, before := time.Now(), cpu(b)
					if _, err := transfer.Copy(b.Context(), source, target, transfer.Options{}); err != nil {
						b.Fatal(err)
					}
					took, busy = took+time.Since(start), busy+cpu(b)-before
					start = time.Now()
					if _, err := transfer.Check(b.Context(), source, target, transfer.Options{}); err != nil {
						b.Fatal(err)
					}
					checked += time.Since(start)
				}
				b.ReportMetric(checked.Seconds()/took.Seconds(), "check/copy")
				b.ReportMetric(float64(busy.Nanoseconds())/float64(n*b.N), "cpu-ns/plant") // without the database server
				b.ReportMetric(float64(n*b.N)/took.Seconds(), "plants/s")
			})
		}
	}
}
