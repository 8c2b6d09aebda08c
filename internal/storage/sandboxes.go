package storage

import (
	"context"
	"time"

	"plantstore/internal/token"
)

// Sandbox is a store that expires, and its one token. Times are kept to the millisecond.
type Sandbox struct {
	Store   string
	Hash    token.Hash
	Seed    string // name of the plants that it starts with
	Created time.Time
	Expires time.Time
	Used    time.Time // about when a request last had the token
	Plants  int64     // about how many plants it has
	Bytes   int64     // about the length of their names and tags
}

// Sandboxes keeps sandboxes. They are not among the tokens of Tokens, and their plants are among those of Plants.
type Sandboxes interface {
	// AddSandbox stores a sandbox that does not exist.
	AddSandbox(ctx context.Context, b Sandbox) error

	// ChangeSandboxes changes those sandboxes that exist: it stores an Expires that is earlier and a Used that is later,
	// and adds Plants and Bytes. If the outcome of a write is unknown, it may add twice.
	ChangeSandboxes(ctx context.Context, changes []Sandbox) error

	// SandboxByHash returns the sandbox of a token, even if it has expired, or token.ErrUnknown.
	SandboxByHash(ctx context.Context, hash token.Hash) (Sandbox, error)

	// Sandboxes returns all sandboxes, the oldest first, even if they have expired.
	Sandboxes(ctx context.Context) ([]Sandbox, error)

	// ForgetSandbox removes a sandbox, but not its plants. It is no error if there is none.
	ForgetSandbox(ctx context.Context, store string) error
}
