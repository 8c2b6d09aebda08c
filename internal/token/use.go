package token

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"time"
)

// Use is when a token was used, cut to the minute.
type Use struct {
	Hash Hash
	At   time.Time
}

// Uses is where uses are kept: see package storage.
type Uses interface {
	Tokens(ctx context.Context) ([]Token, error)
	RecordUses(ctx context.Context, uses []Use) error
}

const (
	maxUses     = 500             // in a transaction, during which creates wait on SQLite
	stopTimeout = 2 * time.Second // for the uses of the last minute when the service stops

	// ExpiresSoon is how long before its expiry a token is reported.
	ExpiresSoon = 14 * 24 * time.Hour
)

// recordUse records that a valid token is used. Busy tokens are looked up once a second, so it is enough to call it
// after lookups, and the other requests cost nothing. Beyond maxCached tokens a minute, uses are lost.
func (c *cache) recordUse(t *Token, at time.Time) {
	at = at.Truncate(time.Minute)
	if t.check(time.Now()) != nil || !at.After(t.LastUsed) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.used) < maxCached && at.After(c.used[t.Hash]) {
		c.used[t.Hash] = at
	}
}

// RecordUses writes the uses of tokens to a database once a minute until ctx ends, and then a last time. At the start
// and once a day, it logs which tokens in use expire soon.
func (a *Authenticator) RecordUses(ctx context.Context, to Uses, log *slog.Logger) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for minute := 0; ; minute++ {
		if minute%(24*60) == 0 {
			logExpiring(ctx, to, time.Now(), log)
		}
		select {
		case <-tick.C:
			a.tokens.writeUses(ctx, to, log)
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			a.tokens.writeUses(ctx, to, log)
			return
		}
	}
}

// writeUses writes the uses since the last call. If the database fails, they are kept for the next call.
func (c *cache) writeUses(ctx context.Context, to Uses, log *slog.Logger) {
	c.mu.RLock()
	var uses []Use
	for hash, at := range c.used {
		uses = append(uses, Use{hash, at})
	}
	c.mu.RUnlock()
	// In the same order in every process, so that their transactions do not deadlock.
	slices.SortFunc(uses, func(a, b Use) int { return bytes.Compare(a.Hash[:], b.Hash[:]) })
	for written := range slices.Chunk(uses, maxUses) {
		if err := to.RecordUses(ctx, written); err != nil {
			log.Warn("the last use of tokens could not be stored", "reason", err.Error())
			return
		}
		c.mu.Lock()
		for _, use := range written {
			if c.used[use.Hash].Equal(use.At) {
				delete(c.used, use.Hash)
			}
		}
		c.mu.Unlock()
	}
}

func logExpiring(ctx context.Context, from Uses, now time.Time, log *slog.Logger) {
	all, err := from.Tokens(ctx)
	if err != nil {
		return // other parts of the service report it
	}
	for _, t := range all {
		if t.ExpiresWithin(ExpiresSoon, now) && now.Sub(t.LastUsed) < ExpiresSoon {
			log.Warn("a token in use expires soon; see plantstore token rotate and token update", "name", t.Name,
				"expires", t.Expires.Format(time.RFC3339))
		}
	}
}
