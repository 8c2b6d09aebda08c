package dbcopy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
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

// Hash identifies the content of a store: it is the same on every engine.
//
// It is the SHA-256 of all plants in the order of their ids. Each is its id, the length of its name in bytes, and the
// name; then a byte 0 if it has no tag, or a byte 1, the length of the tag and the tag. The id and the lengths are 8
// bytes in two's complement, most significant byte first; text is UTF-8.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// appendPlant appends the bytes of a plant that a Hash is made of.
func appendPlant(b []byte, p *plant.Plant) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(p.ID))
	b = appendText(b, p.Name)
	if p.Tag == nil {
		return append(b, 0)
	}
	return appendText(append(b, 1), *p.Tag)
}

func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(text))), text...)
}
