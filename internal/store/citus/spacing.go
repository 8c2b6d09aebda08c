package citus

import (
	"math"
	"sync"

	"plantstore/internal/plant"
)

// spacing records how far apart the ids of each store are on average.
type spacing struct {
	mu      sync.Mutex
	byStore map[string]float64
}

const maxSpacings = 1000 // stores; the memory must not grow with their number

// record sets the spacing of a store to that of a page.
func (s *spacing) record(storeName string, page []plant.New) {
	if len(page) < 2 {
		return
	}
	average := float64(uint64(page[len(page)-1].ID)-uint64(page[0].ID)) / float64(len(page)-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byStore == nil || len(s.byStore) >= maxSpacings {
		s.byStore = map[string]float64{}
	}
	s.byStore[storeName] = average
}

// last returns an id that a number of plants after another probably do not exceed, or the highest id if the spacing or
// the first id is unknown.
func (s *spacing) last(storeName string, after *int64, plants int) int64 {
	s.mu.Lock()
	distance := 1.25 * s.byStore[storeName] * float64(plants)
	s.mu.Unlock()
	if after == nil || distance == 0 || distance >= math.MaxInt64 {
		return math.MaxInt64
	}
	last := *after + int64(distance) // as integers: a float64 has too few bits for an id
	if last < *after {               // overflow
		return math.MaxInt64
	}
	return last
}
