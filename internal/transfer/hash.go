package transfer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"plantstore/internal/plant"
)

// Hash identifies the content of a store: it is the same on every engine.
//
// It is the SHA-256 of all plants in the order of their ids. Each is its id, the length of its name in bytes, and the
// name; then a byte 0 if it has no tag, or a byte 1, the length of the tag and the tag. The id and the lengths are 8
// bytes in two's complement, most significant byte first; text is UTF-8.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// hasher computes a Hash.
type hasher struct {
	hash   hash.Hash
	buffer []byte
	plants int64
}

func newHasher() *hasher { return &hasher{hash: sha256.New()} }

func (h *hasher) add(p *plant.New) {
	h.plants++
	h.buffer = binary.BigEndian.AppendUint64(h.buffer, uint64(p.ID))
	h.buffer = appendText(h.buffer, p.Name)
	if p.Tag == nil {
		h.buffer = append(h.buffer, 0)
	} else {
		h.buffer = appendText(append(h.buffer, 1), *p.Tag)
	}
	if len(h.buffer) >= 8192 {
		h.hash.Write(h.buffer)
		h.buffer = h.buffer[:0]
	}
}

func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(text))), text...)
}

// sum returns the hash of the plants that were added. Call it once.
func (h *hasher) sum() (sum Hash) {
	h.hash.Write(h.buffer)
	h.hash.Sum(sum[:0])
	return sum
}
