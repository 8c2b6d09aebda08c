// Package storage is the port between the service and an engine that keeps plants and tokens:
// what every engine promises, in prose and in Go. The suite in storagetest tests the promises.
package storage

import (
	"context"
	"math"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/token"
)

// Storage is everything that an engine keeps. It is safe for concurrent use.
//
// Close then Open loses nothing. Any number of processes may open the same database.
type Storage interface {
	Plants
	Tokens
	Sandboxes
	Webhooks

	// Check returns nil if a create would be accepted now, and otherwise an error that gives an
	// operator the reason.
	Check(ctx context.Context) error

	// Migrated returns the versions of the schema before and after Open. The version of an empty database is 0.
	Migrated() (from, to int)

	// Stats returns what is known now. It does not wait for the database.
	Stats() Stats

	// Lanes returns how many batches should be in flight at once on one server.
	Lanes() int

	// Close waits for writes in flight and releases the database.
	Close() error
}

// Stats is the state of an open database, for metrics.
type Stats struct {
	Engine   string // sqlite or postgresql
	Schema   int    // version of the schema
	Bytes    int64  // size of the database; 0 if it is unknown
	WALBytes int64  // size of the WAL; -1 if it is unknown
	Free     int64  // bytes on the disk of the database; -1 if they are unknown
	Backup   int64  // Unix time of the last backup; 0 if none is known
	Stopped  bool   // nothing is written until the service is started again

	UsedConns, IdleConns, MaxConns int // connections to the database; SQLite: those that read

	Nodes map[string]int64 // nodes of a cluster by state: ok, down, unsafe or unknown; nil for a single server
}

// Plants keeps plants. (Store, ID) names one plant.
type Plants interface {
	// CreateBatch stores plants and returns one outcome for each, in their order: created,
	// the same as stored, or taken. A plant that is taken never fails the others, and plants of a
	// batch with the same key get the outcomes that they would get in batches of their own.
	//
	// It returns only after every plant whose outcome is Created, and its deliveries, would survive power loss.
	// A non-nil error means that none was stored, unless it is ErrUnknown: then the outcome is
	// unknown and the caller MUST NOT report success. A plant that this call stored may be
	// reported Same if the engine had to send it twice. The end of ctx does not stop a batch.
	CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error)

	// EditBatch replaces and removes plants and returns one outcome for each edit, in their order:
	// replaced, removed, absent or changed. A plant that is absent or changed never fails the other
	// edits; one that is damaged, or that another transaction keeps locked, fails the batch. Edits of
	// the same plant are made in their order, each on the result of the ones before it.
	//
	// Its promises about power loss, errors and the end of ctx are those of CreateBatch. The id of
	// a removed plant can be created again.
	EditBatch(ctx context.Context, edits []plant.Edit) ([]plant.Outcome, error)

	// Shard returns the numbers of the server and of the shard that keep a plant, from 0 on. A batch
	// of one shard is stored fastest; nothing else depends on it. The numbers can change.
	Shard(key plant.Key) (server, shard int)

	// Get returns the plant, or plant.ErrNotFound.
	Get(ctx context.Context, store string, id int64) (plant.Plant, error)

	// List returns at most limit plants of a store in the order of their ids, from the lowest
	// id or, if after is not nil, from the first id above it. Its cost depends on limit, not on
	// the position of the page. Pages are stable under concurrent creates: reading page after page by
	// the last id returns every plant that existed all the time exactly once.
	//
	// The page ends early with the plant that brings it to PageBytes. A page with fewer bytes and fewer
	// than limit plants is the last.
	List(ctx context.Context, store string, after *int64, limit int) ([]plant.Plant, error)

	// Count returns how many plants a store has.
	Count(ctx context.Context, store string) (int64, error)

	// Stores returns the names of the stores that have plants, in the order of their bytes. Its cost
	// depends on the number of stores, not of plants. A store that has plants all the time is
	// returned exactly once, whatever happens to others meanwhile.
	Stores(ctx context.Context) ([]string, error)
}

// Tokens keeps tokens: never a credential, only its hash. Times are kept to the millisecond.
type Tokens interface {
	// AddToken stores a token, or returns token.ErrNameTaken.
	AddToken(ctx context.Context, t token.Token) error

	// TokenByHash returns the token, even if it is revoked or expired, or token.ErrUnknown.
	TokenByHash(ctx context.Context, hash token.Hash) (token.Token, error)

	// Tokens returns all tokens, ordered by their time of creation and then by name.
	Tokens(ctx context.Context) ([]token.Token, error)

	// RevokeToken revokes the token of that name; a token that is already revoked keeps its
	// time. If no token has the name, the error is token.ErrUnknown.
	RevokeToken(ctx context.Context, name string, at time.Time) error

	// ChangeToken gives a token the name, scopes, expiry, rate and burst of after. If add is not nil, it stores that
	// token too, in the same transaction. If a stored value differs from before, or the token is revoked, the error is
	// token.ErrChanged. If another token has one of the new names, it is token.ErrNameTaken.
	ChangeToken(ctx context.Context, before, after token.Token, add *token.Token) error

	// RecordUses stores when tokens were last used, unless a later use is stored. Unknown tokens are ignored.
	RecordUses(ctx context.Context, uses []token.Use) error

	// PruneTokens removes the tokens that were revoked or expired before a time, of one store or, if that is empty, of
	// all stores, and returns how many. Their names can be used again.
	PruneTokens(ctx context.Context, store string, before time.Time) (removed int, err error)
}

// PageBytes bounds a page: a list ends with the plant that brings its names and tags to this many bytes,
// so that a page needs little memory even if its plants are large.
const PageBytes = 256 << 10

// FirstAfter returns the lowest id above after, or the lowest id of all if after is nil.
// It reports false if no id is above after.
func FirstAfter(after *int64) (int64, bool) {
	switch {
	case after == nil:
		return math.MinInt64, true
	case *after == math.MaxInt64:
		return 0, false
	}
	return *after + 1, true
}
