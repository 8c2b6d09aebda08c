package dbcopy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

// The number of plants in a page. PostgreSQL sends all plants of a page even if it ends early because they are large,
// so the limit follows their size.
const minPage, maxPage = 16, 4096

// pages returns the plants of a store in the order of their ids.
func pages(ctx context.Context, db storage.Storage, name string) iter.Seq2[[]plant.Plant, error] {
	return func(yield func([]plant.Plant, error) bool) {
		var after *int64
		for limit := maxPage / 4; ; {
			page, err := db.List(ctx, name, after, limit)
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) == 0 || !yield(page, nil) {
				return
			}
			limit = min(max(minPage, 2*len(page)), maxPage)
			after = &page[len(page)-1].ID
		}
	}
}

// Hash identifies the content of a store: it is the same on every engine. It is the SHA-256 of the store as NDJSON, in
// the order of the ids and without a space that JSON does not need.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }
