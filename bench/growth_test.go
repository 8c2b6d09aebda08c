package main

import (
	"testing"
	"time"
)

func TestPassesStoreEveryPlantOnce(t *testing.T) {
	for _, n := range []int64{1, 15, 16, 17, 1000} {
		seen := map[int64]bool{}
		for i := range n {
			seen[inPasses(i, n)] = true
		}
		for i := range n {
			if !seen[i] {
				t.Errorf("of %d plants, number %d is not stored", n, i)
			}
		}
	}
}

func TestGrowthRowsHaveABase(t *testing.T) {
	rows := growthRows(10, 100)
	for _, r := range rows {
		var took times
		took.Record(time.Duration(r.store.plants) * time.Millisecond)
		r.samples = []sample{took.sample()}
	}
	res := newResult(machine{}, rows, nil, time.Now(), growth)
	for i, l := range res.Rows {
		want := 10 / float64(rows[i].store.plants)
		if off := l.Ratio / want; off < 0.98 || off > 1.02 {
			t.Errorf("%s: ratio %.3f, want %.3f", l.Key, l.Ratio, want)
		}
	}
	if got, want := len(res.Targets), 4; got != want {
		t.Errorf("%d targets, want %d, one for each store", got, want)
	}
}

func TestCountAfterKills(t *testing.T) {
	db := &database{count: 10, maybe: 2}
	for n, ok := range map[int64]bool{9: false, 10: true, 12: true, 13: false} {
		if err := db.check(n); (err == nil) != ok {
			t.Errorf("check(%d) = %v", n, err)
		}
	}
}
