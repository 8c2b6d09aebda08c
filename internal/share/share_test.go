package share_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"plantstore/internal/share"
)

func yes() bool { return true }
func no() bool  { return false }

// step grows one claim, named by its owner and a number, to an amount.
type step struct {
	claim  string // the first letter is the owner
	amount int64
	want   error
}

var exhausted, unfair = share.ErrExhausted, share.ErrUnfair

var poolTests = map[string]struct {
	pool  *share.Pool[byte]
	steps []step
	used  int64
}{
	"a second claim may take as much as stays free": {
		&share.Pool[byte]{Capacity: 10}, []step{{"a1", 4, nil}, {"a2", 1, nil}}, 5},
	"and not more": {
		&share.Pool[byte]{Capacity: 10}, []step{{"a1", 4, nil}, {"a2", 2, unfair}}, 4},
	"what others hold is not free": {
		&share.Pool[byte]{Capacity: 10}, []step{{"b1", 4, nil}, {"a1", 2, nil}, {"a2", 1, nil}, {"a3", 1, unfair}}, 7},
	"the first claim may take all": {
		&share.Pool[byte]{Capacity: 10}, []step{{"a1", 10, nil}, {"b1", 1, exhausted}}, 10},
	"the first claim may take all that is free": {
		&share.Pool[byte]{Capacity: 10}, []step{{"b1", 4, nil}, {"a1", 6, nil}}, 10},
	"and not more than that": {
		&share.Pool[byte]{Capacity: 10}, []step{{"b1", 4, nil}, {"a1", 7, exhausted}}, 4},
	"a first claim may grow": {
		&share.Pool[byte]{Capacity: 10}, []step{{"a1", 3, nil}, {"a1", 10, nil}}, 10},
	"a claim keeps what it holds when it cannot grow": {
		&share.Pool[byte]{Capacity: 10}, []step{{"a1", 3, nil}, {"a1", 11, exhausted}, {"a1", 9, nil}}, 9},
	"a claim that asks for what it holds never fails": {
		&share.Pool[byte]{Capacity: 10}, []step{{"a1", 4, nil}, {"a2", 1, nil}, {"b1", 1, nil}, {"a2", 1, nil}}, 6},
	"a claim never shrinks": {
		&share.Pool[byte]{Capacity: 10}, []step{{"a1", 5, nil}, {"a1", 5, nil}, {"a1", 2, nil}}, 5},
	"a soft pool admits the first claim of every owner": {
		&share.Pool[byte]{Capacity: 2, Soft: true},
		[]step{{"a1", 1, nil}, {"b1", 1, nil}, {"c1", 1, nil}, {"c2", 1, unfair}}, 3},
	"an owner that is alone may take all": {
		&share.Pool[byte]{Capacity: 3, Soft: true, Contended: no},
		[]step{{"a1", 1, nil}, {"a2", 1, nil}, {"a3", 1, nil}, {"a4", 1, nil}}, 4},
	"an owner that is not alone may take half": {
		&share.Pool[byte]{Capacity: 3, Soft: true, Contended: yes}, []step{{"a1", 1, nil}, {"a2", 1, unfair}}, 1},
	"an owner that is alone may not exceed a hard capacity": {
		&share.Pool[byte]{Capacity: 3, Contended: no}, []step{{"a1", 2, nil}, {"a2", 1, nil}, {"a3", 1, exhausted}}, 3},
	"no capacity is no limit": {
		&share.Pool[byte]{}, []step{{"a1", 1 << 40, nil}, {"a2", 1 << 40, nil}}, 0},
}

func TestPool(t *testing.T) {
	for name, test := range poolTests {
		t.Run(name, func(t *testing.T) {
			claims := map[string]*share.Claim[byte]{}
			for _, s := range test.steps {
				if claims[s.claim] == nil {
					c := test.pool.Claim(s.claim[0])
					claims[s.claim] = &c
				}
				if err := claims[s.claim].Grow(s.amount); !errors.Is(err, s.want) {
					t.Fatalf("%s.Grow(%d) = %v, want %v", s.claim, s.amount, err, s.want)
				}
			}
			if used := test.pool.Used(); used != test.used {
				t.Errorf("Used() = %d, want %d", used, test.used)
			}
			for _, c := range claims {
				c.Release()
				c.Release() // the second releases nothing
			}
			if used := test.pool.Used(); used != 0 {
				t.Errorf("Used() = %d after every claim is released, want 0", used)
			}
		})
	}
}

// A released claim counts for its owner no longer.
func TestRelease(t *testing.T) {
	pool := &share.Pool[byte]{Capacity: 10}
	a1, a2, a3 := pool.Claim('a'), pool.Claim('a'), pool.Claim('a')
	if err := errors.Join(a1.Grow(4), a2.Grow(1)); err != nil {
		t.Fatal(err)
	}
	a1.Release()
	if err := a3.Grow(4); err != nil {
		t.Errorf("Grow(4) = %v after a claim of 4 was released", err)
	}
	a2.Release()
	a3.Release()
	if err := a1.Grow(10); err != nil {
		t.Errorf("Grow(10) = %v after all claims were released", err)
	}
}

func TestConcurrentClaims(t *testing.T) {
	pool := &share.Pool[string]{Capacity: 100}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 1000 {
				c := pool.Claim(fmt.Sprint(n % 4))
				if err := c.Grow(20); err == nil && pool.Used() > 100 {
					t.Errorf("Used() = %d, capacity 100", pool.Used())
				}
				c.Release()
			}
		})
	}
	wg.Wait()
	if used := pool.Used(); used != 0 {
		t.Errorf("Used() = %d after every claim is released, want 0", used)
	}
}

// BenchmarkClaim is what a create pays for its fair share.
func BenchmarkClaim(b *testing.B) {
	pool := &share.Pool[[32]byte]{Capacity: 4096, Soft: true, Contended: no}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c := pool.Claim([32]byte{1})
			if err := c.Grow(1); err != nil {
				b.Error(err)
			}
			c.Release()
		}
	})
}
