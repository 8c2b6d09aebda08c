package citus

import (
	"encoding/binary"
	"math/bits"
)

// Citus chooses the shard of a row by PostgreSQL's hash of its distribution column: the functions hashint8 and, for a
// text with the collation C, hashtext. They are Bob Jenkins' lookup3 with another start value.

func hashInt64(n int64) int32 {
	low, high := uint32(n), uint32(n>>32)
	if n < 0 {
		high = ^high
	}
	a := hashStart(4)
	return hashEnd(a+(low^high), a, a)
}

func hashText(text string) int32 {
	a := hashStart(len(text))
	b, c := a, a
	var rest [12]byte
	for ; len(text) >= len(rest); text = text[len(rest):] {
		copy(rest[:], text)
		a += binary.LittleEndian.Uint32(rest[:])
		b += binary.LittleEndian.Uint32(rest[4:])
		c += binary.LittleEndian.Uint32(rest[8:])
		a, b, c = hashMix(a, b, c)
	}
	rest = [12]byte{}
	copy(rest[:], text)
	a += binary.LittleEndian.Uint32(rest[:])
	b += binary.LittleEndian.Uint32(rest[4:])
	c += binary.LittleEndian.Uint32(rest[8:]) << 8 // the lowest byte is reserved for the length
	return hashEnd(a, b, c)
}

func hashStart(length int) uint32 { return 0x9e3779b9 + uint32(length) + 3923095 }

func hashMix(a, b, c uint32) (uint32, uint32, uint32) {
	for _, r := range [2][3]int{{4, 6, 8}, {16, 19, 4}} {
		a = a - c ^ bits.RotateLeft32(c, r[0])
		c += b
		b = b - a ^ bits.RotateLeft32(a, r[1])
		a += c
		c = c - b ^ bits.RotateLeft32(b, r[2])
		b += a
	}
	return a, b, c
}

func hashEnd(a, b, c uint32) int32 {
	c = c ^ b - bits.RotateLeft32(b, 14)
	a = a ^ c - bits.RotateLeft32(c, 11)
	b = b ^ a - bits.RotateLeft32(a, 25)
	c = c ^ b - bits.RotateLeft32(b, 16)
	a = a ^ c - bits.RotateLeft32(c, 4)
	b = b ^ a - bits.RotateLeft32(a, 14)
	c = c ^ b - bits.RotateLeft32(b, 24)
	return int32(c)
}
