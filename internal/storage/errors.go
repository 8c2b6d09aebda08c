package storage

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// The ways in which storage can fail. An engine translates the errors of its driver into these, by code,
// in its own package.
var (
	// ErrBusy: more writes are waiting than the service accepts; nothing was stored.
	ErrBusy = errors.New("too many writes are waiting")
	// ErrStopping: the service accepts no more writes; nothing was stored.
	ErrStopping = errors.New("the service is stopping")
	// ErrUnknown: whether the plant was stored is unknown, so the caller must not report success.
	ErrUnknown = errors.New("the outcome is unknown")
	// ErrFull: the disk has no space left; nothing was stored.
	ErrFull = errors.New("the disk of the database is full")
	// ErrUnavailable: the database can't be written or reached now; nothing was stored.
	ErrUnavailable = errors.New("the database is unavailable")
	// ErrDamaged: the database is damaged, so that some of its content can't be read. It is also an ErrUnavailable.
	ErrDamaged = fmt.Errorf("%w: it is damaged", ErrUnavailable)
)

// CheckText returns ErrDamaged if a stored text can't have been created: it is not UTF-8, or contains U+0000.
// A text may be nil.
func CheckText(texts ...*string) error {
	for _, text := range texts {
		if text != nil && (!utf8.ValidString(*text) || strings.Contains(*text, "\x00")) {
			return fmt.Errorf("%w; restore a backup: a stored text is not UTF-8 or contains U+0000", ErrDamaged)
		}
	}
	return nil
}

// Damage keeps the first ErrDamaged of a database until the process ends. A later success does not show that the damage
// was repaired, because reads of undamaged plants succeed all the time.
type Damage struct{ first atomic.Pointer[error] }

// Record returns err, and keeps it if it is the first ErrDamaged.
func (d *Damage) Record(err error) error {
	if errors.Is(err, ErrDamaged) {
		d.first.CompareAndSwap(nil, &err)
	}
	return err
}

// Err returns the recorded error, or nil.
func (d *Damage) Err() error {
	if err := d.first.Load(); err != nil {
		return *err
	}
	return nil
}
