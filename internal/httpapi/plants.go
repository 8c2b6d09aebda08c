package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/token"
)

const (
	defaultLimit = 100
	maxLimit     = 1000

	maxPage = store.PageBytes // bytes after which a page ends: each client that reads slowly holds as many
	maxRead = 100             // plants that are read at once

	members = len(`{"id":-9223372036854775808,"name":"","tag":""},`) // what a plant has besides its text
)

func (a *API) createPlant(x *exchange, r *http.Request, t *token.Token) error {
	var err error
	if x.buf, err = a.readBody(x, r, x.buf[:0]); err != nil {
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
	switch outcome {
	case plant.Created, plant.Same:
	case plant.Taken:
		return fmt.Errorf("/id: %w: expected an id that is free, or plant %d as it is stored; found it with another name or tag", plant.ErrTaken, p.ID)
	default: // never 200 without being told so
		return fmt.Errorf("%w: the outcome is %d", store.ErrUnknown, outcome)
	}
	x.buf = p.Plant.AppendJSON(x.buf[:0])
	writeJSON(x, http.StatusOK, x.buf)
	return nil
}

func (a *API) getPlant(x *exchange, r *http.Request, t *token.Token) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	p, err := a.reader.Get(r.Context(), t.Store, id)
	if err != nil {
		return about(id, err)
	}
	if err := x.hold(2 * p.Size()); err != nil { // as it is, and as JSON until a slow client has read it
		return err
	}
	tag := etag(p.Plant)
	x.Header().Set("ETag", tag)
	if tags, err := entityTags(r.Header["If-None-Match"]); err == nil && (matches(tags, tag) || matches(tags, "W/"+tag)) {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}
	writePlant(x, p)
	return nil
}

func (a *API) listPlants(x *exchange, r *http.Request, t *token.Token) error {
	limit, after, err := pageOf(r.URL.RawQuery)
	if err != nil {
		return err
	}
	b, next, err := a.appendPage(x, r.Context(), append(x.buf[:0], '['), t.Store, after, limit)
	if err != nil {
		return err
	}
	x.buf = append(b, ']')
	if next != nil {
		query := url.Values{"limit": {strconv.Itoa(limit)}, "after": {strconv.FormatInt(*next, 10)}}
		x.Header().Set("Link", fmt.Sprintf(`<%s/plants?%s>; rel="next"`, a.prefix, query.Encode()))
	}
	if prefers(r.Header["Prefer"], "count=exact") {
		n, err := a.count(r.Context(), t.Store)
		if err != nil {
			return err
		}
		x.Header().Set("Plants-Count", strconv.FormatInt(n, 10))
		x.Header().Set("Preference-Applied", "count=exact")
	}
	writeJSON(x, http.StatusOK, x.buf)
	return nil
}

// count lets few count at once: each reads all plants of a store.
func (a *API) count(ctx context.Context, store string) (int64, error) {
	select {
	case a.counting <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(time.Second):
		return 0, busy("too many clients have plants counted")
	}
	defer func() { <-a.counting }()
	return a.reader.Count(ctx, store)
}

// appendPage appends at most limit plants, and fewer where they are large: what a request can make the
// service hold is bounded. next is the cursor of the page that follows, nil where there is none.
func (a *API) appendPage(x *exchange, ctx context.Context, b []byte, store string, after *int64, limit int) (_ []byte, next *int64, err error) {
	for written := 0; ; {
		n := min(limit-written, maxRead)
		// One more than is written tells whether anything follows.
		plants, err := a.reader.List(ctx, store, after, n+1)
		if err != nil {
			return b, nil, err
		}
		size := 0
		for _, p := range plants {
			size += p.Size() + members
		}
		if err := x.hold(len(b) + size); err != nil {
			return b, nil, err
		}
		b = slices.Grow(b, size)
		read := 0
		for ; read < min(n, len(plants)) && len(b) < maxPage; read++ {
			if written > 0 {
				b = append(b, ',')
			}
			b = plants[read].AppendJSON(b)
			written++
		}
		if err := x.hold(cap(b)); err != nil {
			return b, nil, err
		}
		follows := read < len(plants)
		if !follows && len(b) < maxPage { // it would have had more
			return b, nil, nil
		}
		last := plants[read-1].ID // and not a pointer into plants, which would keep all their text
		after = &last
		if !follows { // a list that is large ends whether more is there or not
			if plants, err = a.reader.List(ctx, store, after, 1); err != nil || len(plants) == 0 {
				return b, nil, err
			}
		}
		if written == limit || len(b) >= maxPage {
			return b, after, nil
		}
	}
}

func (a *API) replacePlant(x *exchange, r *http.Request, t *token.Token) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	if x.buf, err = a.readBody(x, r, x.buf[:0]); err != nil {
		return err
	}
	to, err := plant.DecodePlant(x.buf)
	if err != nil {
		return err
	}
	seen, err := a.precondition(r, t.Store, id)
	if err != nil {
		return about(id, err)
	}
	if err := a.editor.Replace(r.Context(), t.Store, id, to, seen); err != nil {
		return about(id, err)
	}
	x.Header().Set("ETag", etag(to))
	writePlant(x, plant.New{ID: id, Plant: to})
	return nil
}

func (a *API) removePlant(x *exchange, r *http.Request, t *token.Token) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	seen, err := a.precondition(r, t.Store, id)
	if err != nil {
		return about(id, err)
	}
	if err := a.editor.Remove(r.Context(), t.Store, id, seen); err != nil {
		return about(id, err)
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

func writePlant(x *exchange, p plant.New) {
	x.buf = p.AppendJSON(x.buf[:0])
	writeJSON(x, http.StatusOK, x.buf)
}

func about(id int64, err error) error { return fmt.Errorf("plant %d: %w", id, err) }

// precondition turns If-Match into the plant that the client has seen. Nil means any: the
// store compares once more when it writes, so nobody slips in between.
func (a *API) precondition(r *http.Request, store string, id int64) (*plant.Plant, error) {
	tags, err := entityTags(r.Header["If-Match"])
	if err != nil || len(tags) == 0 {
		return nil, err
	}
	p, err := a.reader.Get(r.Context(), store, id)
	if err != nil {
		return nil, err
	}
	if tags[0] == "*" {
		return nil, nil
	}
	if !matches(tags, etag(p.Plant)) {
		return nil, plant.ErrChanged
	}
	return &p.Plant, nil
}

// etag names the content of a plant: the same name and tag always have the same one.
func etag(p plant.Plant) string {
	sum := sha256.Sum256(p.AppendJSON(nil))
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

// entityTags reads If-Match and If-None-Match. Our tags hold no comma, so a comma ends one.
func entityTags(headers []string) (tags []string, err error) {
	for _, tag := range strings.Split(strings.Join(headers, ","), ",") {
		switch tag = strings.TrimSpace(tag); {
		case tag == "":
		case tag == "*" || len(strings.TrimPrefix(tag, "W/")) >= 2 && strings.HasPrefix(strings.TrimPrefix(tag, "W/"), `"`) && strings.HasSuffix(tag, `"`):
			tags = append(tags, tag)
		default:
			return nil, fmt.Errorf("%w, found %.64q", errBadPrecondition, tag)
		}
	}
	return tags, nil
}

func matches(tags []string, tag string) bool {
	return slices.Contains(tags, "*") || slices.Contains(tags, tag)
}

func pathID(r *http.Request) (int64, error) {
	text := r.PathValue("id")
	id, err := plant.ParseID(text)
	if err != nil {
		return 0, fmt.Errorf("%w, found %.32q", errBadID, text)
	}
	return id, nil
}

func pageOf(query string) (limit int, after *int64, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, nil, errBadQuery
	}
	limit = defaultLimit
	for name, all := range values {
		if name != "limit" && name != "after" {
			continue
		}
		n, err := plant.ParseID(all[0])
		switch {
		case len(all) > 1:
			return 0, nil, fmt.Errorf("%w: %s", errBadQuery, name)
		case name == "after":
			if err != nil {
				return 0, nil, fmt.Errorf("%w, found %.32q", errBadAfter, all[0])
			}
			after = &n
		case err != nil || n < 1 || n > maxLimit:
			return 0, nil, fmt.Errorf("%w, found %.32q", errBadLimit, all[0])
		default:
			limit = int(n)
		}
	}
	return limit, after, nil
}

// prefers reports whether a Prefer header (RFC 7240) asks for something.
func prefers(headers []string, preference string) bool {
	for _, p := range strings.Split(strings.Join(headers, ","), ",") {
		if strings.EqualFold(strings.TrimSpace(p), preference) {
			return true
		}
	}
	return false
}
