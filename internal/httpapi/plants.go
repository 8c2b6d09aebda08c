package httpapi

import (
	"fmt"
	"net/http"

	"plantstore/internal/plant"
	"plantstore/internal/token"
)

func (a *API) createPlant(x *exchange, r *http.Request, t token.Token) error {
	var err error
	if x.buf, err = a.readBody(r, x.buf[:0]); err != nil {
		return err
	}
	p, err := plant.Decode(x.buf)
	if err != nil {
		return err
	}
	outcome, err := a.creator.Create(r.Context(), plant.Record{Store: t.Store, New: p})
	if err != nil {
		return err
	}
	if outcome == plant.Taken {
		return fmt.Errorf("/id: %w: expected an id that is free, or plant %d as it is stored; found it with another name or tag", plant.ErrTaken, p.ID)
	}
	x.buf = p.Plant.AppendJSON(x.buf[:0])
	writeJSON(x, http.StatusOK, x.buf)
	return nil
}
