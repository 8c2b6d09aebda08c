// Package share divides a bounded resource fairly between the owners that use it.
package share

import (
	"errors"
	"sync"
)

var (
	// ErrExhausted: the owners together would hold more than the capacity.
	ErrExhausted = errors.New("the resource is exhausted")
	// ErrUnfair: the owner would hold more than would stay free for others.
	ErrUnfair = errors.New("the owner holds as much as is free")
)

// Pool is a bounded amount of a resource. An owner may hold at most as much as then stays free, so no owner
// holds more than half and there is always some for others. The first claim of an owner is exempt from that
// rule: an owner that holds nothing else may take all that is free.
//
// The fields must not change after the first use. A Pool is safe for concurrent use.
type Pool[Owner comparable] struct {
	Capacity  int64       // 0 is unlimited: nothing is counted
	Soft      bool        // another component enforces the capacity, so no claim fails with ErrExhausted
	Contended func() bool // whether other owners are present, without whom shares do not matter; nil is always

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

// Grow raises the claim to amount, unless it holds as much already. When it fails, with ErrExhausted or ErrUnfair,
// the claim keeps what it held.
func (c *Claim[Owner]) Grow(amount int64) error {
	p, more := c.pool, amount-c.amount
	if p.Capacity == 0 || more <= 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	used, owned := p.used+more, p.by[c.owner]+more
	free := p.Capacity - used
	if free < 0 && !p.Soft {
		return ErrExhausted
	}
	if owned > free && owned > amount && (p.Contended == nil || p.Contended()) {
		return ErrUnfair
	}
	if p.by == nil {
		p.by = map[Owner]int64{}
	}
	p.used, p.by[c.owner] = used, owned
	c.amount = amount
	return nil
}

// Release returns all that the claim holds to the pool. The claim can grow again.
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

// Used returns how much all owners together hold.
func (p *Pool[Owner]) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}
