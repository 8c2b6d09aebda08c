// Package plant is the domain: what a plant is, what a client may send to create one,
// and what can become of the attempt. It knows neither HTTP nor a database.
package plant

import "errors"

// Plant is what a client reads back after a create. A nil Tag means that the plant has none,
// which is not the same as an empty one.
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

// Size is how many bytes the name and the tag have together.
func (p Plant) Size() int {
	if p.Tag == nil {
		return len(p.Name)
	}
	return len(p.Name) + len(*p.Tag)
}

// New is a plant with the identification number that its creator chose.
type New struct {
	ID int64
	Plant
}

// Record is a New plant in the store that it belongs to. Plants of different stores never
// see or collide with each other: (Store, ID) names one plant.
type Record struct {
	Store string
	New
}

// Outcome is what became of one plant of a batch.
type Outcome uint8

const (
	// Created: the plant was not there and is now on disk.
	Created Outcome = iota + 1
	// Same: the id was there with the same name and tag; nothing was stored.
	Same
	// Taken: the id was there with another name or tag; nothing was stored.
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

// What can keep a plant from being created, read or changed.
var (
	// ErrTaken: another plant of this store has the id.
	ErrTaken = errors.New("the id already belongs to a plant with a different name or tag")
	// ErrNotFound: no plant of this store has the id.
	ErrNotFound = errors.New("no plant has this id")
	// ErrChanged: the plant is no longer the one that the caller has seen.
	ErrChanged = errors.New("the plant has changed")
)
