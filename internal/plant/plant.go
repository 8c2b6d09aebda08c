// Package plant is the domain: plants, their JSON form, filters, and the outcomes and errors of operations on them.
package plant

import "errors"

// Plant is a plant without its id. A nil Tag means that the plant has no tag, which differs from an empty one.
type Plant struct {
	Name string
	Tag  *string
}

// Equal reports whether p and q are the same plant, character for character.
func (p Plant) Equal(q Plant) bool {
	if p.Name != q.Name || (p.Tag == nil) != (q.Tag == nil) {
		return false
	}
	return p.Tag == nil || *p.Tag == *q.Tag
}

// Size returns the length of the name and the tag in bytes.
func (p Plant) Size() int {
	if p.Tag == nil {
		return len(p.Name)
	}
	return len(p.Name) + len(*p.Tag)
}

// New is a plant with the id that its client chose.
type New struct {
	ID int64
	Plant
}

// Record is a plant in the store that it belongs to. (Store, ID) identifies a plant: those of different stores are
// independent.
type Record struct {
	Store string
	New
}

// Outcome is the result of a create that did not fail.
type Outcome uint8

const (
	// Created: the plant is new and on disk.
	Created Outcome = iota + 1
	// Same: the plant existed with the same name and tag; nothing was stored.
	Same
	// Taken: the id belongs to a plant with a different name or tag; nothing was stored.
	Taken
)

func (o Outcome) String() string {
	switch o {
	case Created:
		return "created"
	case Same:
		return "same"
	case Taken:
		return "taken"
	}
	return "invalid outcome"
}

// The errors of operations on plants.
var (
	// ErrTaken: the id belongs to a plant with a different name or tag.
	ErrTaken = errors.New("the id already belongs to a plant with a different name or tag")
	// ErrNotFound: no plant of the store has the id.
	ErrNotFound = errors.New("no plant has this id")
	// ErrChanged: the plant is no longer equal to the one that the caller expects.
	ErrChanged = errors.New("the plant has changed")
)
