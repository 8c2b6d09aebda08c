package share

import "sync"

// Waiters bounds how many requests wait for something, for each owner and in all. A waiting request holds a connection.
// So requests beyond the bound are refused at once, and do not hold connections that other clients need.
//
// The exported fields must not change after the first use. Waiters is safe for concurrent use.
type Waiters[Owner comparable] struct {
	PerOwner, Total int

	mu    sync.Mutex
	total int
	by    map[Owner]int // waiting requests of each owner that has some
}

// Enter reports false if the owner has PerOwner waiting requests, or all owners have Total. It never waits. If ok is
// true, the caller must call leave once, when the request has stopped waiting.
func (w *Waiters[Owner]) Enter(owner Owner) (leave func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.total >= w.Total || w.by[owner] >= w.PerOwner {
		return nil, false
	}
	if w.by == nil {
		w.by = map[Owner]int{}
	}
	w.total++
	w.by[owner]++
	return func() { w.leave(owner) }, true
}

func (w *Waiters[Owner]) leave(owner Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.by[owner]--; w.by[owner] == 0 {
		delete(w.by, owner)
	}
}
