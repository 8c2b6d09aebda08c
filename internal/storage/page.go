package storage

import "math"

// PageBytes bounds a page: a list ends with the plant that brings its names and tags to this many bytes,
// so that a page needs little memory even if its plants are large.
const PageBytes = 256 << 10

// FirstAfter returns the lowest id above after, or the lowest id of all if after is nil.
// It reports false if no id is above after.
func FirstAfter(after *int64) (int64, bool) {
	switch {
	case after == nil:
		return math.MinInt64, true
	case *after == math.MaxInt64:
		return 0, false
	}
	return *after + 1, true
}
