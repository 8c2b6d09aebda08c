package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
)

// EditBatch is not repeatable: after an attempt that succeeded, a second one would find the plants changed or removed.
func (s *Storage) EditBatch(_ context.Context, edits []plant.Edit) ([]plant.Outcome, error) {
	if len(edits) == 0 {
		return nil, nil
	}
	order := plant.ByKey(edits, func(e *plant.Edit) plant.Key { return e.Key })
	outcomes := make([]plant.Outcome, len(edits))
	err := s.write(s.otherSlots, false, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
		return sendEdits(ctx, conn, edits, order, outcomes)
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// sendEdits makes edits in one transaction and one round trip, and sets their outcomes.
//
// A plant that an edit expects to be unchanged is locked first. If the edit then changes no row, the result of the
// lock tells whether the plant is absent or different: no other transaction can have changed it in between.
func sendEdits(
	ctx context.Context, conn *pgx.Conn, edits []plant.Edit, order []int, outcomes []plant.Outcome,
) (stored bool, err error) {
	p := newPipeline(ctx, conn, len(edits) > 1 || edits[0].Seen != nil)
	for _, i := range order {
		p.addEdit(ctx, &edits[i])
	}
	rows, stored, err := p.commit(ctx)
	if err != nil {
		return stored, err
	}
	for _, i := range order {
		locked := false
		if edits[i].Seen != nil {
			locked, rows = rows[0] > 0, rows[1:]
		}
		outcomes[i], rows = outcomeOfEdit(&edits[i], locked, rows[0] > 0), rows[1:]
	}
	return true, nil
}

// outcomeOfEdit returns the outcome of an edit that has locked and changed a row, or not.
func outcomeOfEdit(e *plant.Edit, locked, changed bool) plant.Outcome {
	switch {
	case changed && e.To != nil:
		return plant.Replaced
	case changed:
		return plant.Removed
	case locked:
		return plant.Changed
	}
	return plant.Absent
}

func (p *pipeline) addEdit(ctx context.Context, e *plant.Edit) {
	sql, args := removePlant, []any{e.Store, e.ID}
	if e.To != nil {
		sql, args = replacePlant, append(args, e.To.Name, e.To.Tag)
	}
	if e.Seen != nil {
		p.add(ctx, lockPlant, e.Store, e.ID)
		if sql = removeIfEqual; e.To != nil {
			sql = replaceIfEqual
		}
		args = append(args, e.Seen.Name, e.Seen.Tag)
	}
	p.add(ctx, sql, args...)
}
