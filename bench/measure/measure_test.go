package measure

import (
	"os"
	"testing"
	"time"
)

func TestHistogramQuantiles(t *testing.T) {
	var h Histogram
	for i := 1; i <= 100_000; i++ {
		h.Record(time.Duration(i) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{
		0.5: 50 * time.Millisecond, 0.99: 99 * time.Millisecond, 0.999: 99900 * time.Microsecond, 1: 100 * time.Millisecond,
	} {
		got := h.Quantile(q)
		if off := got - want; off < 0 || off > want/100 {
			t.Errorf("Quantile(%v) = %v, want %v to 1 %% above", q, got, want)
		}
	}
	if got, want := h.Count(), int64(100_000); got != want {
		t.Errorf("Count() = %d, want %d", got, want)
	}
}

func TestHistogramBuckets(t *testing.T) {
	for _, v := range []uint64{0, 1, 127, 128, 255, 256, 257, 1 << 20, 1<<20 + 12345, 1<<62 + 1} {
		i := bucket(v)
		if top := upper(i); top < v || (i > 0 && upper(i-1) >= v) {
			t.Errorf("%d is in bucket %d, which covers values up to %d and over %d", v, i, top, upper(max(0, i-1)))
		}
	}
}

func TestIDsAreDistinctAndHaveOneLength(t *testing.T) {
	const n = 200_000
	seen := make(map[int64]bool, 3*n)
	for i := range int64(n) {
		for _, id := range []int64{ID(i, false), ID(i, true), SpreadID(i, n)} {
			if seen[id] {
				t.Fatalf("id %d of sequence number %d is not unique", id, i)
			}
			seen[id] = true
			if id-1 < 1e15 || id >= 1<<53 {
				t.Fatalf("id %d: want 16 digits, also for the number below, and less than 2^53", id)
			}
		}
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	before, err := Usage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 5*time.Millisecond; {
	}
	after, err := Usage(os.Getpid())
	if err != nil || after.CPU <= before.CPU || after.RSS == 0 || after.Peak < after.RSS {
		t.Errorf("Usage = %+v, %v after 5 ms of work, and %+v before it", after, err, before)
	}
}
