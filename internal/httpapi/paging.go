package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"plantstore/internal/plant"
	"plantstore/internal/share"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	maxPage      = storage.PageBytes // bytes after which a page ends: each client that reads slowly keeps as many
	maxCounts    = 2                 // counts in flight: each may read all plants of a store
	countWait    = time.Second       // for a count to start
	countTime    = 20 * time.Second  // for a count to end: many clients and proxies have a timeout of 30 s

	maxExamined      = 10_000           // plants that a search examines before its page ends
	maxExaminedBytes = 16 * maxPage     // of their text
	maxSearches      = 2                // searches in flight: an engine has connections for more reads
	searchWait       = 5 * time.Second  // for a search to start
	searchTime       = 10 * time.Second // after which its page ends

	maxWaiting   = 256 // searches and counts in flight or waiting: each holds a connection
	maxWaitingOf = 32  // of these, of one token
)

// page is a part of a list, as a client requests it.
type page struct {
	limit  int
	after  *int64 // nil: from the lowest id
	filter plant.Filter
	query  url.Values
}

func parsePage(query url.Values) (page, error) {
	p := page{limit: defaultLimit, query: query}
	var tag *string
	for _, name := range slices.Sorted(maps.Keys(query)) {
		value := query[name][0]
		switch {
		case len(query[name]) > 1:
			return p, FailField(errBadQuery, name, "appears more than once in the query string; send it once")
		case !utf8.ValidString(value) || strings.Contains(value, "\x00"):
			return p, FailField(errBadQuery, name, "in the query string must be UTF-8 without U+0000")
		}
		switch name {
		case "after":
			n, err := plant.ParseID(value)
			if err != nil {
				return p, Failf(errBadAfter, "after %v, but is %.32q", err, value)
			}
			p.after = &n
		case "limit":
			if value == "" || value[0] == '0' || strings.Trim(value, "0123456789") != "" {
				return p, Failf(errBadLimit, "limit must be an integer of at least 1, but is %.32q", value)
			}
			n, _ := strconv.Atoi(value) // the largest int if it is larger
			p.limit = min(n, maxLimit)
		case "tag":
			tag = &value
		}
	}
	p.filter = plant.NewFilter(tag, query.Get("q"))
	return p, nil
}

// link is the Link header that leads to the page after an id.
func (a *API) link(p page, after int64) string {
	query := url.Values{}
	maps.Copy(query, p.query)
	if query.Get("q") == "" {
		query.Del("q")
	}
	query.Set("limit", strconv.Itoa(p.limit))
	query.Set("after", strconv.FormatInt(after, 10))
	return fmt.Sprintf(`<%s/plants?%s>; rel="next"`, a.deps.Prefix, query.Encode())
}

// admit waits for a slot of an operation that may read many plants: few run at a time, and one of each token. If the
// operation does not start within wait, the error is errWaiting. The caller calls release at the end.
func (a *API) admit(x *exchange, slots *share.Slots[token.Hash], wait time.Duration) (release func(), err error) {
	leave, ok := a.waiting.Enter(x.token.Hash)
	if !ok {
		return nil, errWaiting
	}
	ctx, cancel := context.WithTimeout(x.request.Context(), wait)
	defer cancel()
	free, err := slots.Acquire(ctx, x.token.Hash)
	if err != nil {
		leave()
		return nil, cmp.Or(x.request.Context().Err(), errWaiting)
	}
	return func() { free(); leave() }, nil
}

var errWaiting = Failf(storage.ErrBusy, "too many searches are waiting; retry later")

// readPage puts the plants of a page into the buffer, and returns the cursor of the next page. A page with a filter is
// a search: it may examine far more plants than it returns, and also ends when its client disconnects.
func (a *API) readPage(x *exchange, p page) (next *int64, err error) {
	if p.filter.All() {
		return a.examine(x.ctx, x, p)
	}
	release, err := a.admit(x, a.searches, searchWait)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(x.request.Context(), searchTime)
	defer cancel()
	return a.examine(ctx, x, p)
}

// examine is readPage without the bounds of a search. The page ends at its limit, and earlier where plants are large or
// many were examined, so that the memory and the time of a request are bounded. It returns the cursor of the next page,
// which is the last plant that was examined, or nil after the last plant of the store.
func (a *API) examine(ctx context.Context, x *exchange, p page) (next *int64, err error) {
	x.buf = append(x.buf[:0], '[')
	var last int64 // a pointer into a list would keep all its text in memory
	found, examined, size := 0, 0, 0
	full := func() bool {
		return found == p.limit || len(x.buf) >= maxPage || examined >= a.maxExamined || size >= maxExaminedBytes
	}
	for next = p.after; ; {
		want := p.limit + 1 // one more shows whether any follows
		switch {
		case full():
			want = 1
		case !p.filter.All():
			want = maxLimit
		}
		plants, err := a.deps.Reader.List(ctx, x.token.Store, next, want)
		switch {
		case err != nil && ctx.Err() != nil && examined > 0: // out of time
			return next, nil
		case err != nil:
			return nil, err
		}
		before := size
		for _, candidate := range plants {
			if full() {
				return next, nil
			}
			last, next = candidate.ID, &last
			examined, size = examined+1, size+candidate.Size()
			if !p.filter.Match(candidate.Content) {
				continue
			}
			if found > 0 {
				x.buf = append(x.buf, ',')
			}
			x.buf = candidate.AppendJSON(x.buf)
			if err := x.reserve(cap(x.buf)); err != nil {
				return nil, err
			}
			found++
		}
		if len(plants) < want && size-before < storage.PageBytes { // a shorter list has no more plants
			return nil, nil
		}
	}
}

// count sets the headers that say how many plants the store of the request has. Each count of a large store takes
// seconds on PostgreSQL, and the first one on SQLite. If the count does not start or end in time, it sets none, so the
// client knows. It does so too if the client closes its connection, or only its sending side; PostgreSQL then still
// completes a query that has started.
func (a *API) count(x *exchange) error {
	release, err := a.admit(x, a.counts, countWait)
	if err != nil {
		return nil
	}
	defer release()
	ctx, cancel := context.WithTimeout(x.request.Context(), countTime)
	defer cancel()
	n, err := a.deps.Reader.Count(ctx, x.token.Store)
	switch {
	case err == nil:
		x.Header().Set("Plants-Count", strconv.FormatInt(n, 10))
		x.Header().Add("Preference-Applied", "count=exact")
	case ctx.Err() == nil && !errors.Is(err, storage.ErrBusy):
		return err
	}
	return nil
}

// preference matches an element of Prefer headers: they are separated by commas, except in quoted strings.
var preference = regexp.MustCompile(`(?:[^,"]|"(?:[^"\\]|\\.)*"?)+`)

// Preferences returns the elements of Prefer headers (RFC 7240), each with its parameters.
func Preferences(headers []string) []string {
	return preference.FindAllString(strings.Join(headers, ","), -1)
}

// prefersCount reports whether the first preference named count in the Prefer headers (RFC 7240) has the value exact.
func prefersCount(headers []string) bool {
	for _, p := range Preferences(headers) {
		p, _, _ = strings.Cut(p, ";") // parameters follow
		name, value, _ := strings.Cut(p, "=")
		if strings.EqualFold(strings.TrimSpace(name), "count") {
			value = strings.TrimSpace(value)
			return strings.EqualFold(value, "exact") || strings.EqualFold(value, `"exact"`)
		}
	}
	return false
}
