// Package sandbox gives each visitor or test job a store of its own for a limited time. Its client can inject faults,
// and list the requests that it has sent.
//
// A sandbox is a row of storage.Sandboxes, and its plants are in the database like all others. Its rules and its
// journal are in the memory of the process that received them.
package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/share"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// Config is what an operator sets.
type Config struct {
	Max  int        // sandboxes in all
	Rate rate.Limit // of new sandboxes from one address; zero: no bound of an address or of the disk
}

// limit is the rate of the token of a sandbox.
var limit = rate.Limit{Count: 50, Per: time.Second, Burst: 100}

// Storage is the part of storage.Storage that sandboxes need.
type Storage interface {
	storage.Plants
	storage.Sandboxes
	token.Lookup
	Stats() storage.Stats
}

// Sandboxes are the sandboxes of a database. They implement httpapi.Sandbox, and token.Lookup for all tokens.
type Sandboxes struct {
	cfg     Config
	storage Storage
	created *rate.Table[netip.Addr]
	adding  share.Waiters[string] // waiting requests for new sandboxes, by address
	waiting share.Waiters[string] // waiting resets and removes, by store
	slot    chan struct{}         // held by the one change that runs

	mu      sync.Mutex
	boxes   map[string]*box // by store
	bytes   int64           // of the plants in all sandboxes
	journal int64           // bytes of all journals
}

// box is a sandbox, as this process knows it.
type box struct {
	storage.Sandbox                   // as it is stored; zero until it was read
	used            time.Time         // its last use by this process
	plants, bytes   int64             // added by this process since it last wrote them
	rules           []*rule           // in the order of the client
	journal         []json.RawMessage // the oldest first, as they are sent
	journalBytes    int64             // of journal
	numbered        int64             // the number of the last entry; numbers have no gaps
}

// New returns the sandboxes of a database. Run keeps them up to date.
func New(cfg Config, st Storage) *Sandboxes {
	return &Sandboxes{
		cfg: cfg, storage: st, slot: make(chan struct{}, 1), boxes: map[string]*box{},
		created: rate.NewTable[netip.Addr](maxAddresses, time.Now),
		adding:  share.Waiters[string]{PerOwner: maxAddingOf, Total: maxAdding},
		waiting: share.Waiters[string]{PerOwner: 1, Total: maxChanging},
	}
}

// TokenByHash implements token.Lookup. It is called about once a second for each token in use.
func (s *Sandboxes) TokenByHash(ctx context.Context, hash token.Hash) (token.Token, error) {
	t, err := s.storage.TokenByHash(ctx, hash)
	if !errors.Is(err, token.ErrUnknown) {
		return t, err
	}
	row, err := s.storage.SandboxByHash(ctx, hash)
	if err != nil {
		return token.Token{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.box(row.Store).Sandbox = row
	return token.Token{
		Name: "sandbox", Hash: hash, Store: row.Store, Scopes: token.AllScopes,
		Created: row.Created, Expires: row.Expires, Rate: limit, Sandbox: true,
	}, nil
}

// box returns the sandbox of a store, and records that it is used. The caller holds mu.
func (s *Sandboxes) box(store string) *box {
	b := s.boxes[store]
	if b == nil {
		b = new(box)
		s.boxes[store] = b
	}
	b.used = time.Now()
	return b
}

func (s *Sandboxes) Create(c httpapi.Call) (any, error) {
	seed, ttl, err := decodeOptions(c.Body)
	if err != nil {
		return nil, err
	}
	owner := ""
	if s.cfg.Rate.Count > 0 {
		address := share.Network(c.Address)
		owner = address.String()
		if used := s.created.Take(address, s.cfg.Rate); !used.OK {
			return nil, &rate.Exceeded{Why: httpapi.ErrSandboxRate, Wait: used.Wait}
		}
	}
	credential, now := token.Generate(), time.Now().UTC().Truncate(time.Millisecond)
	row := storage.Sandbox{
		Store: token.SandboxPrefix + strings.ToLower(rand.Text()), Hash: token.HashOf(credential), Seed: seed,
		Created: now, Expires: now.Add(ttl), Used: now,
	}
	row.Plants, row.Bytes = sizeOf(seeds[seed])
	err = s.change(&s.adding, cmp.Or(owner, row.Store), func() error {
		if err := s.makeSpace(c); err != nil {
			return err
		}
		if err := s.storage.AddSandbox(c, row); err != nil {
			return err
		}
		s.mu.Lock()
		s.box(row.Store).Sandbox = row
		s.bytes += row.Bytes
		s.mu.Unlock()
		return s.sow(c, row.Store, seed)
	})
	if err != nil {
		return nil, err
	}
	return struct {
		Store   string    `json:"store"`
		Token   string    `json:"token"`
		Expires time.Time `json:"expires"`
		Plants  int64     `json:"plants"`
	}{row.Store, credential, row.Expires, row.Plants}, nil
}

func (s *Sandboxes) Remove(c httpapi.Call) (any, error) {
	return nil, s.change(&s.waiting, c.Token.Store, func() error {
		if err := s.end(c, c.Token.Store); err != nil {
			return err
		}
		s.clear(c, c.Token.Store, 0) // Run clears what is left
		return nil
	})
}

func (s *Sandboxes) Reset(c httpapi.Call) (any, error) {
	return nil, s.change(&s.waiting, c.Token.Store, func() error {
		row, err := s.storage.SandboxByHash(c, c.Token.Hash)
		if err != nil {
			return err
		}
		if err = s.clear(c, row.Store, 0); err == nil {
			err = s.sow(c, row.Store, row.Seed)
		}
		if err != nil {
			return fmt.Errorf("%w: %v", storage.ErrUnknown, err) // some plants may be removed
		}
		plants, bytes := sizeOf(seeds[row.Seed])
		s.mu.Lock()
		defer s.mu.Unlock()
		b := s.box(row.Store)
		s.add(b, plants-b.Plants-b.plants, bytes-b.Bytes-b.bytes)
		return nil
	})
}

// sow stores the plants of a seed. They are not created by a client.
func (s *Sandboxes) sow(ctx context.Context, store, seed string) error {
	var all []plant.Record
	for _, p := range seeds[seed] {
		all = append(all, plant.Record{Store: store, Plant: p})
	}
	_, err := s.storage.CreateBatch(ctx, all)
	return err
}

func (s *Sandboxes) clear(ctx context.Context, store string, rest time.Duration) error {
	return storage.Clear(ctx, s.storage, store, rest, new(atomic.Int64))
}

// end makes a sandbox expire now. Run removes it.
func (s *Sandboxes) end(ctx context.Context, store string) error {
	now := time.Now().UTC().Truncate(time.Millisecond)
	err := s.storage.ChangeSandboxes(ctx, []storage.Sandbox{{Store: store, Expires: now}})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		b := s.box(store)
		b.Expires = now
		s.drop(b)
	}
	return err
}

// drop empties the rules and the journal of a sandbox. The caller holds mu.
func (s *Sandboxes) drop(b *box) {
	b.rules = nil
	s.truncate(b, 0)
}
