package measure

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets whose width is less than 1 % of their value.
// It never allocates, and recording costs a few instructions.
type Histogram struct {
	counts [64 << subBits]int64
	total  int64
	max    time.Duration
}

const subBits = 7

// Record counts one duration.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(uint64(d))]++
	h.total++
	h.max = max(h.max, d)
}

// Count returns the number of recorded durations.
func (h *Histogram) Count() int64 { return h.total }

// Max returns the longest recorded duration.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration that the share q of all records does not exceed.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := max(1, int64(q*float64(h.total)+0.5))
	var seen int64
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return min(time.Duration(upper(i)), h.max)
		}
	}
	return h.max
}

// bucket returns the index of a value: it keeps the seven bits after the leading one.
func bucket(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// upper returns the largest value of a bucket.
func upper(i int) uint64 {
	if i < 2<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return uint64(i-shift<<subBits+1)<<shift - 1
}
