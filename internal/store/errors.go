package store

import "errors"

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
)
