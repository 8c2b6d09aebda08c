package share

import "testing"

func yes() bool { return true }
func no() bool  { return false }

// step grows one claim, named by its owner and a number, to an amount.
type step struct {
	claim  string // the first letter is the owner
	amount int64
	want   bool
}

const exhausted, unfair = false, false

var poolTests = map[string]struct {
	pool  *Pool[byte]
	steps []step
	used  int64
}{
	"a second claim may take as much as stays free": {
		&Pool[byte]{Capacity: 10}, []step{{"a1", 4, true}, {"a2", 1, true}}, 5},
	"and not more": {
		&Pool[byte]{Capacity: 10}, []step{{"a1", 4, true}, {"a2", 2, unfair}}, 4},
	"what others hold is not free": {
		&Pool[byte]{Capacity: 10}, []step{{"b1", 4, true}, {"a1", 2, true}, {"a2", 1, true}, {"a3", 1, unfair}}, 7},
	"the first claim may take all": {
		&Pool[byte]{Capacity: 10}, []step{{"a1", 10, true}, {"b1", 1, exhausted}}, 10},
	"the first claim may take all that is free": {
		&Pool[byte]{Capacity: 10}, []step{{"b1", 4, true}, {"a1", 6, true}}, 10},
	"and not more than that": {
		&Pool[byte]{Capacity: 10}, []step{{"b1", 4, true}, {"a1", 7, exhausted}}, 4},
	"a first claim may grow": {
		&Pool[byte]{Capacity: 10}, []step{{"a1", 3, true}, {"a1", 10, true}}, 10},
	"a claim keeps what it holds when it cannot grow": {
		&Pool[byte]{Capacity: 10}, []step{{"a1", 3, true}, {"a1", 11, exhausted}, {"a1", 9, true}}, 9},
	"a claim that asks for what it holds never fails": {
		&Pool[byte]{Capacity: 10}, []step{{"a1", 4, true}, {"a2", 1, true}, {"b1", 1, true}, {"a2", 1, true}}, 6},
	"a claim never shrinks": {
		&Pool[byte]{Capacity: 10}, []step{{"a1", 5, true}, {"a1", 5, true}, {"a1", 2, true}}, 5},
	"a pool with a capacity that is enforced elsewhere admits the first claim of every owner": {
		&Pool[byte]{Capacity: 2, CapacityEnforcedElsewhere: true},
		[]step{{"a1", 1, true}, {"b1", 1, true}, {"c1", 1, true}, {"c2", 1, unfair}}, 3},
	"an owner that is alone may take all": {
		&Pool[byte]{Capacity: 3, CapacityEnforcedElsewhere: true, Contended: no},
		[]step{{"a1", 1, true}, {"a2", 1, true}, {"a3", 1, true}, {"a4", 1, true}}, 4},
	"an owner that is not alone may take half": {
		&Pool[byte]{Capacity: 3, CapacityEnforcedElsewhere: true, Contended: yes},
		[]step{{"a1", 1, true}, {"a2", 1, unfair}}, 1},
	"an owner that is alone may not exceed a hard capacity": {
		&Pool[byte]{Capacity: 3, Contended: no}, []step{{"a1", 2, true}, {"a2", 1, true}, {"a3", 1, exhausted}}, 3},
	"no capacity is no limit": {
		&Pool[byte]{}, []step{{"a1", 1 << 40, true}, {"a2", 1 << 40, true}}, 0},
}

func TestPool(t *testing.T) {
	for name, test := range poolTests {
		t.Run(name, func(t *testing.T) {
			claims := map[string]*Claim[byte]{}
			for _, s := range test.steps {
				if claims[s.claim] == nil {
					c := test.pool.Claim(s.claim[0])
					claims[s.claim] = &c
				}
				if got := claims[s.claim].RaiseTo(s.amount); got != s.want {
					t.Fatalf("%s.RaiseTo(%d) = %v, want %v", s.claim, s.amount, got, s.want)
				}
			}
			if used := test.pool.used; used != test.used {
				t.Errorf("used = %d, want %d", used, test.used)
			}
			for _, c := range claims {
				c.Release()
				c.Release() // the second releases nothing
			}
			if used := test.pool.used; used != 0 {
				t.Errorf("used = %d after every claim is released, want 0", used)
			}
		})
	}
}

// A released claim counts for its owner no longer.
func TestRelease(t *testing.T) {
	pool := &Pool[byte]{Capacity: 10}
	a1, a2, a3 := pool.Claim('a'), pool.Claim('a'), pool.Claim('a')
	if !a1.RaiseTo(4) || !a2.RaiseTo(1) {
		t.Fatal("claims of a free pool failed")
	}
	a1.Release()
	if !a3.RaiseTo(4) {
		t.Error("RaiseTo(4) failed after a claim of 4 was released")
	}
	a2.Release()
	a3.Release()
	if len(pool.by) != 0 {
		t.Errorf("%d owners are kept after all claims were released", len(pool.by))
	}
	if !a1.RaiseTo(10) {
		t.Error("RaiseTo(10) failed after all claims were released")
	}
}
