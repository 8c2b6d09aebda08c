package sqlite

import "context"

const (
	firstStore = "SELECT store FROM plants ORDER BY store LIMIT 1"
	nextStore  = "SELECT store FROM plants WHERE store > ? ORDER BY store LIMIT 1"
)

// Stores implements store.Plants. SELECT DISTINCT would read the whole index.
func (s *Store) Stores(ctx context.Context) (names []string, err error) {
	text, args := firstStore, []any(nil)
	for {
		found := false
		for row, err := range s.readers.query(ctx, text, args...) {
			if err != nil {
				return nil, err
			}
			names = append(names, row.ColumnText(0))
			found = true
		}
		if !found {
			return names, nil
		}
		text, args = nextStore, []any{names[len(names)-1]}
	}
}
