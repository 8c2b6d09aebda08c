package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	maxPage      = store.PageBytes  // bytes after which a page ends: each client that reads slowly keeps as many
	maxCounts    = 2                // counts in flight: each reads all plants of a store
	countWait    = time.Second      // for a count to start
	countTime    = 20 * time.Second // for a count to end: many clients and proxies have a timeout of 30 s

	members = len(`{"id":-9223372036854775808,"name":"","tag":""},`) // bytes of a plant besides its text
)

// page is a part of a list, as a client asks for it.
type page struct {
	limit int
	after *int64 // nil: from the lowest id
}

func parsePage(query string) (page, error) {
	p := page{limit: defaultLimit}
	values, err := url.ParseQuery(query)
	if err != nil {
		return p, errBadQuery
	}
	for name, all := range values {
		if name != "limit" && name != "after" {
			continue
		}
		n, err := plant.ParseID(all[0])
		switch {
		case len(all) > 1:
			return p, failf(errBadQuery, "%s appears more than once in the query string; send it once", name)
		case name == "after" && err != nil:
			return p, failf(errBadAfter, "after %v, but is %.32q", err, all[0])
		case name == "after":
			p.after = &n
		case err != nil || n < 1 || n > maxLimit:
			return p, failf(errBadLimit, "limit must be an integer from 1 to %d, but is %.32q", maxLimit, all[0])
		default:
			p.limit = int(n)
		}
	}
	return p, nil
}

// link is the Link header that leads to the page after an id.
func (a *API) link(limit int, after int64) string {
	query := url.Values{"limit": {strconv.Itoa(limit)}, "after": {strconv.FormatInt(after, 10)}}
	return fmt.Sprintf(`<%s/plants?%s>; rel="next"`, a.deps.Prefix, query.Encode())
}

// readPage puts the plants of a page into the buffer, fewer than its limit where they are large, so that the memory of
// a request is bounded. It returns the cursor of the next page, or nil after the last plant.
func (a *API) readPage(x *exchange, p page) (next *int64, err error) {
	x.buf = append(x.buf[:0], '[')
	plants, err := a.deps.Reader.List(x.context(), x.token.Store, p.after, p.limit+1) // one more shows whether any follows
	if err != nil {
		return nil, err
	}
	read, err := x.appendPlants(plants, p.limit)
	if err != nil {
		return nil, err
	}
	if read < len(plants) || len(x.buf) >= maxPage { // a shorter list has no more plants
		last := plants[read-1].ID // a pointer into plants would keep all their text in memory
		next = &last
	}
	if next != nil && read == len(plants) { // a large list ends at maxPage whether more plants follow or not
		more, err := a.deps.Reader.List(x.context(), x.token.Store, next, 1)
		if err != nil {
			return nil, err
		}
		if len(more) == 0 {
			next = nil
		}
	}
	x.buf = append(x.buf, ']')
	return next, nil
}

// appendPlants appends the first n plants to the buffer, or fewer where they fill the page, and returns how many.
func (x *exchange) appendPlants(plants []plant.New, n int) (read int, err error) {
	size := 0
	for _, p := range plants {
		size += p.Size() + members
	}
	if err := x.reserve(len(x.buf) + size); err != nil {
		return 0, err
	}
	x.buf = slices.Grow(x.buf, size)
	for ; read < min(n, len(plants)) && len(x.buf) < maxPage; read++ {
		if read > 0 {
			x.buf = append(x.buf, ',')
		}
		x.buf = plants[read].AppendJSON(x.buf)
	}
	return read, x.reserve(cap(x.buf))
}

// errNotCounted means that a list is returned without its count.
var errNotCounted = errors.New("counting the plants took too long")

// count returns how many plants the store of the request has. A large store takes seconds, so few counts run at a time,
// and tokens share them. If the count does not start or end in time, count returns errNotCounted. It does so too if the
// client closes its connection, or only its sending side; PostgreSQL then still completes a query that has started.
func (a *API) count(x *exchange) (int64, error) {
	ctx, cancel := a.deps.Connections.CancelOnDisconnect(x.context())
	defer cancel()
	ctx, cancelTime := context.WithTimeout(ctx, countTime)
	defer cancelTime()
	waiting, cancelWait := context.WithTimeout(ctx, countWait)
	defer cancelWait()
	release, err := a.counts.Acquire(waiting, x.token.Hash)
	if err != nil {
		return 0, errNotCounted
	}
	defer release()
	n, err := a.deps.Reader.Count(ctx, x.token.Store)
	if err != nil && (ctx.Err() != nil || errors.Is(err, store.ErrBusy)) {
		err = errNotCounted
	}
	return n, err
}

// prefersCount reports whether the first preference named count in the Prefer headers (RFC 7240) has the value exact.
func prefersCount(headers []string) bool {
	for rest := strings.Join(headers, ","); rest != ""; {
		var p string
		p, rest = cutPreference(rest)
		p, _, _ = strings.Cut(p, ";") // parameters follow
		name, value, _ := strings.Cut(p, "=")
		if strings.EqualFold(strings.TrimSpace(name), "count") {
			value = strings.TrimSpace(value)
			return strings.EqualFold(value, "exact") || strings.EqualFold(value, `"exact"`)
		}
	}
	return false
}

// cutPreference cuts a list at its first comma outside of quoted strings.
func cutPreference(list string) (first, rest string) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}
