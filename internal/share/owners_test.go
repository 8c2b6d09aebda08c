package share

import "testing"

// A pool keeps nothing about owners that hold nothing.
func TestOwnersAreDropped(t *testing.T) {
	p := &Pool[int]{Capacity: 10}
	a, b := p.Claim(1), p.Claim(1)
	if a.Grow(1) != nil || b.Grow(2) != nil {
		t.Fatal("claims fail")
	}
	a.Release()
	if p.by[1] != 2 {
		t.Errorf("the owner holds %d, want 2", p.by[1])
	}
	b.Release()
	if len(p.by) != 0 {
		t.Errorf("%d owners are kept after all claims are released", len(p.by))
	}
}
