package postgres

import (
	"context"
	"fmt"

	"plantstore/internal/store"
)

var errSource = fmt.Errorf("%w: the database was opened for reading only", store.ErrUnavailable)

// OpenSource opens a database for reading only, whatever the durability of its server. It creates and migrates nothing,
// and refuses an older or newer schema. The store refuses every write.
func OpenSource(ctx context.Context, address string) (*Store, error) {
	return Open(ctx, address, Options{UnsafeDurability: true, readOnly: true})
}
