// Package plant is the domain: plants, their JSON form, filters, and the outcomes and errors of operations on them.
package plant

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// Content is a plant without its id. A nil Tag means that the plant has no tag, which differs from an empty one.
type Content struct {
	Name string
	Tag  *string
}

// Equal reports whether c and d are the same, character for character.
func (c Content) Equal(d Content) bool {
	return c.Name == d.Name && (c.Tag == d.Tag || c.Tag != nil && d.Tag != nil && *c.Tag == *d.Tag)
}

// Size returns the length of the name and the tag in bytes.
func (c Content) Size() int {
	if c.Tag == nil {
		return len(c.Name)
	}
	return len(c.Name) + len(*c.Tag)
}

// Plant is a plant with the id that its client chose.
type Plant struct {
	ID int64
	Content
}

// Key identifies a plant. Plants of different stores are independent.
type Key struct {
	Store string
	ID    int64
}

// Compare orders keys by store and id.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Store, other.Store), cmp.Compare(k.ID, other.ID))
}

// Record is a plant in the store that it belongs to.
type Record struct {
	Store string
	Plant
	Event string // id of the event if the plant is created; "" for none: see storage.Webhooks
}

// Key returns the key of the plant.
func (r *Record) Key() Key { return Key{r.Store, r.ID} }

// Edit replaces or removes a stored plant.
type Edit struct {
	Key
	To   *Content // the new name and tag; nil removes the plant
	Seen *Content // if not nil, only a plant that is equal to it is changed
}

// ByKey returns the indexes of records or edits in the order of their keys. Those of the same plant keep their order.
func ByKey[T any](writes []T, key func(*T) Key) []int {
	order := make([]int, len(writes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(key(&writes[i]).Compare(key(&writes[j])), cmp.Compare(i, j))
	})
	return order
}

// Outcome is the result of a create or an edit that did not fail.
type Outcome uint8

const (
	// Created: the plant is new and on disk.
	Created Outcome = iota + 1
	// Same: the plant existed with the same name and tag; nothing was stored.
	Same
	// Taken: the id belongs to a plant with a different name or tag; nothing was stored.
	Taken
	// Replaced: the plant has the new name and tag, on disk.
	Replaced
	// Removed: the plant is removed, on disk.
	Removed
	// Absent: no plant has the key of the edit.
	Absent
	// Changed: the plant no longer equals the Seen of the edit; the edit changed nothing.
	Changed
)

// outcomes has the name of each outcome, and the error of each failed one.
var outcomes = [...]struct {
	name string
	err  error
}{
	0:       {"invalid outcome", errors.New("the engine returned no outcome")},
	Created: {"created", nil}, Same: {"same", nil}, Taken: {"taken", ErrTaken}, Replaced: {"replaced", nil},
	Removed: {"removed", nil}, Absent: {"absent", ErrNotFound}, Changed: {"changed", ErrChanged},
}

func (o Outcome) String() string { return outcomes[o].name }

// Err returns the error of a failed create or edit, and otherwise nil.
func (o Outcome) Err() error { return outcomes[o].err }

// The errors of operations on plants.
var (
	// ErrTaken: the id belongs to a plant with a different name or tag.
	ErrTaken = errors.New("the id already belongs to a plant with a different name or tag")
	// ErrNotFound: no plant of the store has the id.
	ErrNotFound = errors.New("no plant has this id")
	// ErrChanged: the plant no longer equals what the caller expects.
	ErrChanged = errors.New("the plant has changed")
)
