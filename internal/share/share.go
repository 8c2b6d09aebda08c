// Package share divides a bounded resource fairly between the owners that use it.
package share

import "sync"

// Pool is a bounded amount of a resource. A claim succeeds only if its owner would hold no more than remains free. So
// one owner can hold at most half. An owner's first claim is exempt: it may take all that is free.
//
// The fields must not change after the first use. A Pool is safe for concurrent use.
type Pool[Owner comparable] struct {
	Capacity                  int64       // 0 is unlimited: nothing is counted
	CapacityEnforcedElsewhere bool        // the owners together may hold more
	Contended                 func() bool // whether there are other owners, without whom shares do not matter; nil: always

	mu   sync.Mutex
	used int64
	by   map[Owner]int64 // of used; has only owners that hold something
}

// Claim is what one request of an owner holds of a pool.
type Claim[Owner comparable] struct {
	pool   *Pool[Owner]
	owner  Owner
	amount int64
}

// Claim returns a claim that holds nothing yet.
func (p *Pool[Owner]) Claim(owner Owner) Claim[Owner] { return Claim[Owner]{pool: p, owner: owner} }

// RaiseTo raises the claim to amount, unless it holds as much already. It reports false if the pool is exhausted, or
// the owner would hold more than remains free for others. Then the claim keeps what it held.
func (c *Claim[Owner]) RaiseTo(amount int64) bool {
	p, more := c.pool, amount-c.amount
	if p.Capacity == 0 || more <= 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	used, owned := p.used+more, p.by[c.owner]+more
	free := p.Capacity - used
	isUnfair := owned > free && owned > amount && (p.Contended == nil || p.Contended())
	if isUnfair || free < 0 && !p.CapacityEnforcedElsewhere {
		return false
	}
	if p.by == nil {
		p.by = map[Owner]int64{}
	}
	p.used, p.by[c.owner] = used, owned
	c.amount = amount
	return true
}

// Release returns all that the claim holds to the pool. The claim can be raised again.
func (c *Claim[Owner]) Release() {
	if c.amount == 0 {
		return
	}
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= c.amount
	if p.by[c.owner] -= c.amount; p.by[c.owner] == 0 {
		delete(p.by, c.owner)
	}
	c.amount = 0
}
