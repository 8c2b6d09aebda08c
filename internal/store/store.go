// Package store is the port between the service and an engine that keeps plants and tokens:
// what every engine promises, in prose and in Go. The suite in storetest proves the promises.
//
// The errors that an engine returns are in errors.go.
package store

import (
	"context"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/token"
)

// Store is everything that an engine keeps. It is safe for concurrent use.
//
// Close then Open loses nothing. Any number of processes may open the same database.
type Store interface {
	Plants
	Tokens

	// Check returns nil when a create would be accepted now, and otherwise an error that says,
	// for an operator, why not.
	Check(ctx context.Context) error

	// Lanes is how many batches under way at once pay off.
	Lanes() int

	// Close waits for what is under way and releases the database.
	Close() error
}

// Plants keeps plants. (Store, ID) names one plant.
type Plants interface {
	// CreateBatch stores plants and returns one outcome for each, in their order: created,
	// the same as stored, or taken. One that is taken never fails its neighbours, and a key
	// that stands twice in a batch is decided as if its plants had come one after the other.
	//
	// It returns only after every plant whose outcome is Created would survive power loss.
	// A non-nil error means that none was stored, unless it is ErrUnknown: then the outcome is
	// not known and the caller MUST NOT report success. A plant that this call stored may be
	// reported Same where the engine had to ask twice. Once begun, a batch ignores the end of ctx.
	CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error)

	// Get returns the plant, or plant.ErrNotFound.
	Get(ctx context.Context, store string, id int64) (plant.New, error)

	// List returns at most limit plants of a store in the order of their ids, from the lowest
	// id or, where after is not nil, from the first id above it. Its cost depends on limit, not on
	// where the page is. Pages are stable under concurrent creates: walking them by the last id
	// meets every plant that was there all the time exactly once.
	//
	// It ends early with the plant that makes it PageBytes or more, whatever follows, and
	// reads no other into memory: it has none only where none is left.
	List(ctx context.Context, store string, after *int64, limit int) ([]plant.New, error)

	// Count returns how many plants a store has.
	Count(ctx context.Context, store string) (int64, error)

	// Replace gives the plant a new name and tag, durably as in CreateBatch. Where seen is not nil
	// and the stored plant is not equal to it, nothing changes and the error is plant.ErrChanged.
	// An absent id is plant.ErrNotFound; ErrUnknown as in CreateBatch.
	Replace(ctx context.Context, store string, id int64, to plant.Plant, seen *plant.Plant) error

	// Remove deletes the plant, durably, under the conditions of Replace.
	// The id can be created again.
	Remove(ctx context.Context, store string, id int64, seen *plant.Plant) error
}

// Tokens keeps what is known of credentials: never a credential, only its hash.
// Times are kept to the millisecond.
type Tokens interface {
	// AddToken stores a token, or returns token.ErrNameTaken.
	AddToken(ctx context.Context, t token.Token) error

	// TokenByHash returns the token, revoked and expired ones too, or token.ErrUnknown.
	TokenByHash(ctx context.Context, hash token.Hash) (token.Token, error)

	// Tokens returns all tokens, the oldest first; ties by name.
	Tokens(ctx context.Context) ([]token.Token, error)

	// RevokeToken marks the token of that name revoked, once: one that is revoked already
	// keeps its time. No such name is token.ErrUnknown.
	RevokeToken(ctx context.Context, name string, at time.Time) error
}
