package store

import "math"

// PageBytes bounds a page: a list ends with the plant that brings its names and tags to this many bytes,
// so that a page takes little memory however large its plants are.
const PageBytes = 256 << 10

// FirstAfter is the lowest id above after, or the lowest of all where after is nil.
// It reports false when there is none.
func FirstAfter(after *int64) (int64, bool) {
	switch {
	case after == nil:
		return math.MinInt64, true
	case *after == math.MaxInt64:
		return 0, false
	}
	return *after + 1, true
}
