package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"plantstore/internal/plant"
)

func (a *API) createPlant(x *exchange) error {
	if err := a.readBody(x); err != nil {
		return err
	}
	p, err := plant.Decode(x.buf)
	if err != nil {
		return err
	}
	if err := a.create(x, p); err != nil {
		return err
	}
	x.buf = p.Content.AppendJSON(x.buf[:0])
	writeJSON(x, http.StatusOK, x.buf)
	return nil
}

// create stores a plant, or confirms that it is stored already.
func (a *API) create(x *exchange, p plant.Plant) error {
	claim, err := x.enqueue(&a.creates)
	if err != nil {
		return err
	}
	defer claim.Release()
	outcome, err := a.deps.Create(x.ctx, plant.Record{Store: x.token.Store, Plant: p})
	if err = cmp.Or(err, outcome.Err()); errors.Is(err, plant.ErrTaken) {
		return Failf(plant.ErrTaken, "id %d already belongs to a plant with a different name or tag", p.ID)
	}
	return err
}

func (a *API) getPlant(x *exchange) error {
	id, err := pathID(x)
	if err != nil {
		return err
	}
	p, err := a.deps.Reader.Get(x.ctx, x.token.Store, id)
	if err != nil {
		return about(id, err)
	}
	if err := x.reserve(2 * p.Size()); err != nil { // the plant, and its JSON until a slow client has read it
		return err
	}
	tag := etag(p.Content)
	x.Header().Set("ETag", tag)
	// An invalid header matches nothing: the plant is returned as without the header.
	if seen, err := entityTags(x.request, "If-None-Match"); err == nil && matchesWeakly(seen, tag) {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}
	writePlant(x, p)
	return nil
}

func (a *API) listPlants(x *exchange) error {
	p, err := parsePage(x.query)
	if err != nil {
		return err
	}
	next, err := a.readPage(x, p)
	if err != nil {
		return err
	}
	if next != nil {
		x.Header().Set("Link", a.link(p, *next))
	}
	if p.filter.All() && prefersCount(x.request.Header["Prefer"]) {
		if err := a.count(x); err != nil {
			return err
		}
	}
	x.buf = append(x.buf, ']')
	writeJSON(x, http.StatusOK, x.buf)
	return nil
}

func (a *API) replacePlant(x *exchange) error {
	id, err := pathID(x)
	if err != nil {
		return err
	}
	if err := a.readBody(x); err != nil {
		return err
	}
	to, err := plant.DecodePlant(x.buf, id)
	if err != nil {
		return err
	}
	if err := a.edit(x, id, &to); err != nil {
		return err
	}
	x.Header().Set("ETag", etag(to))
	writePlant(x, plant.Plant{ID: id, Content: to})
	return nil
}

func (a *API) removePlant(x *exchange) error {
	id, err := pathID(x)
	if err != nil {
		return err
	}
	if err := a.edit(x, id, nil); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// edit replaces a plant that meets the precondition of the request, or removes it if to is nil.
func (a *API) edit(x *exchange, id int64, to *plant.Content) error {
	seen, err := a.precondition(x, id)
	if err != nil {
		return about(id, err)
	}
	claim, err := x.enqueue(&a.edits)
	if err != nil {
		return err
	}
	defer claim.Release()
	key := plant.Key{Store: x.token.Store, ID: id}
	outcome, err := a.deps.Edit(x.ctx, plant.Edit{Key: key, To: to, Seen: seen})
	if err = cmp.Or(err, outcome.Err()); errors.Is(err, plant.ErrChanged) && len(x.request.Header["If-Match"]) == 0 {
		return Failf(errMatches, "plant %d changed while it was compared with If-None-Match; retry", id)
	}
	return about(id, err)
}

func writePlant(x *exchange, p plant.Plant) {
	x.buf = p.AppendJSON(x.buf[:0])
	writeJSON(x, http.StatusOK, x.buf)
}

// about adds the id of a plant to an error, if there is one.
func about(id int64, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, plant.ErrNotFound):
		return Failf(plant.ErrNotFound, "plant %d does not exist", id)
	case errors.Is(err, plant.ErrChanged):
		return Failf(plant.ErrChanged, "plant %d does not match If-Match; read it again before you change it", id)
	case errors.Is(err, errMatches):
		return Failf(errMatches, "plant %d matches If-None-Match; nothing was changed", id)
	}
	return fmt.Errorf("plant %d: %w", id, err)
}

func pathID(x *exchange) (int64, error) {
	text := x.request.PathValue("id")
	id, err := plant.ParseID(text)
	if err != nil {
		return 0, Failf(errBadID, "id in the path %v, but is %.32q", err, text)
	}
	return id, nil
}
