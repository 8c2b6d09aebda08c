// Package client talks to a Plant Store service.
//
// Every call takes a context and ends when it ends. A call that failed for a passing reason is
// repeated where that is safe, with growing pauses: see WithRetries. What the service refuses is
// an *Error. Whether a change that failed may have been made all the same is one question:
// errors.Is(err, ErrUnknown). The token is in no error.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Plant is a plant without its id. A nil Tag means that it has none, which is not the same as an
// empty one. Both are kept character for character.
type Plant struct {
	Name string  `json:"name"`
	Tag  *string `json:"tag,omitzero"`
}

// NewPlant is a plant with the id that its creator chose. Every int64 is one.
type NewPlant struct {
	ID int64 `json:"id"`
	Plant
}

// Stored is a plant as the service has it. ETag names its content, for Replace and Remove.
type Stored struct {
	NewPlant
	ETag string `json:"etag,omitzero"`
}

// Page says where Plants begins. Its zero value is the first plant of all.
type Page struct {
	Size  int    // plants to fetch at a time, 1 to 1000; 0 leaves it to the service
	After *int64 // only plants with higher ids
}

// Client is safe for use by many goroutines.
type Client struct {
	base    *url.URL
	token   string
	http    *http.Client
	retries int
	backoff time.Duration
}

// Option changes a Client that is being made.
type Option func(*Client)

// WithHTTPClient sets what carries the requests, for another transport or timeout. It is copied;
// the copy follows no redirect, since a redirected create would become a read.
// Without this option a try may take 30 seconds.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) { c.http = h }
}

// WithRetries sets how often a call is repeated at most, and the first pause. Pauses double up to
// 5 seconds, are shortened at random by up to a half, and come on top of what Retry-After asks
// for. A call is given up at once where the pause would outlast its context, or where Retry-After
// is more than a minute. Without this option it is 5 times from 100 milliseconds; n = 0 repeats nothing.
func WithRetries(n int, backoff time.Duration) Option {
	return func(c *Client) { c.retries, c.backoff = n, max(backoff, 0) }
}

// New makes a client of the service at a base URL such as http://127.0.0.1:8080. It does not
// connect yet.
func New(baseURL, token string, options ...Option) (*Client, error) {
	base, err := url.Parse(baseURL)
	switch {
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Hostname() == "":
		return nil, fmt.Errorf("the address of the service is %q: expected one such as http://127.0.0.1:8080", baseURL)
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the address of the service has a user, a query or a fragment: expected none")
	case token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("the token: expected visible ASCII characters")
	}
	c := &Client{base: base, token: token, http: &http.Client{Timeout: 30 * time.Second}, retries: 5, backoff: 100 * time.Millisecond}
	if shared, ok := http.DefaultTransport.(*http.Transport); ok {
		own := shared.Clone()
		own.MaxIdleConns, own.MaxIdleConnsPerHost = 256, 256 // the service commits what arrives together together
		c.http.Transport = own
	}
	for _, option := range options {
		option(c)
	}
	h := *c.http
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &h
	return c, nil
}

// Create stores a plant and returns it as the service has it; it would then survive power loss.
// The same plant again is no error and stores nothing, so Create is repeated after 429, 502, 503,
// 504 and a lost connection. Another plant under the id is an *Error with the number 40009, and certain:
// this plant is not there, or, after a lost answer, not any more, since it was replaced meanwhile.
//
// Where errors.Is(err, ErrUnknown) it is not known whether the plant is stored: Create it again. After
// any other error it is not.
func (c *Client) Create(ctx context.Context, p NewPlant) (Plant, error) {
	body, err := encode(p, p.Plant)
	if err != nil {
		return Plant{}, err
	}
	q := request{method: http.MethodPost, url: c.base.JoinPath("plants"), body: body, want: http.StatusOK, safe: true}
	a, err := c.do(ctx, q)
	if err != nil {
		return Plant{}, err
	}
	var w wire
	if json.Unmarshal(a.body, &w) != nil || w.Name == nil {
		return Plant{}, q.unknown(errNotOurs)
	}
	return Plant{*w.Name, w.Tag}, nil
}

// Get reads a plant. It is repeated as Create is.
func (c *Client) Get(ctx context.Context, id int64) (Stored, error) {
	return c.stored(ctx, request{method: http.MethodGet, url: c.plant(id), want: http.StatusOK, safe: true})
}

// Replace gives a plant that is there another name and tag. With an ifMatch that is not empty it
// does so only where the plant still has that ETag, and is otherwise an *Error with the number 41201.
//
// It is repeated only when nothing can have happened: after 429, after a 503 that says that
// nothing was stored, and when no connection was made. So an error with the number 40401 or 41201
// is certain: nothing was replaced.
//
// Where errors.Is(err, ErrUnknown) it is not known whether the plant was replaced: Get it. To Replace it
// again might undo what somebody else has done since; with the same ifMatch it does not, but a 41201 then
// may come from the change that the first call has made, and a 40401 says only that the plant is gone now.
func (c *Client) Replace(ctx context.Context, id int64, to Plant, ifMatch string) (Stored, error) {
	body, err := encode(to, to)
	if err != nil {
		return Stored{}, err
	}
	return c.stored(ctx, request{method: http.MethodPut, url: c.plant(id), body: body, ifMatch: ifMatch, want: http.StatusOK})
}

// Remove removes a plant. ifMatch and repetition are as in Replace, and so is an error with the number
// 40401 or 41201: certain, nothing was removed.
//
// Where errors.Is(err, ErrUnknown) it is not known whether the plant was removed: Get it; 40401 says that it
// is gone. To Remove it again might remove one that was created since.
func (c *Client) Remove(ctx context.Context, id int64, ifMatch string) error {
	_, err := c.do(ctx, request{method: http.MethodDelete, url: c.plant(id), ifMatch: ifMatch, want: http.StatusNoContent})
	return err
}

// Plants walks through the plants of the store in the order of their ids. It fetches a page when
// the walk gets there, holds one at a time and no connection between them, and ends with the
// first error. Each page is repeated as Create is. Plants created behind the walk are not seen.
func (c *Client) Plants(ctx context.Context, from Page) iter.Seq2[NewPlant, error] {
	return func(yield func(NewPlant, error) bool) {
		query := url.Values{}
		if from.Size != 0 {
			query.Set("limit", strconv.Itoa(from.Size))
		}
		if from.After != nil {
			query.Set("after", strconv.FormatInt(*from.After, 10))
		}
		last := from.After
		for next, more := query.Encode(), true; more; {
			var page []NewPlant
			var err error
			if page, next, more, err = c.page(ctx, next); err != nil {
				yield(NewPlant{}, err)
				return
			}
			for _, p := range page {
				if last != nil && p.ID <= *last { // such a walk might never end
					yield(NewPlant{}, fmt.Errorf("the service lists plant %d after plant %d", p.ID, *last))
					return
				}
				if !yield(p, nil) {
					return
				}
				last = &p.ID
			}
		}
	}
}

// Count is how many plants the store has. The service reads them all to know. It is repeated as Create is.
func (c *Client) Count(ctx context.Context) (int64, error) {
	a, err := c.do(ctx, c.list("limit=1", "count=exact"))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(a.header.Get("Plants-Count"), 10, 64)
	if err != nil {
		return 0, errNotOurs
	}
	return n, nil
}

func (c *Client) plant(id int64) *url.URL {
	return c.base.JoinPath("plants", strconv.FormatInt(id, 10))
}

func (c *Client) list(query, prefer string) request {
	u := c.base.JoinPath("plants")
	u.RawQuery = query
	return request{method: http.MethodGet, url: u, prefer: prefer, want: http.StatusOK, safe: true}
}

func (c *Client) page(ctx context.Context, query string) (page []NewPlant, next string, more bool, err error) {
	a, err := c.do(ctx, c.list(query, ""))
	if err != nil {
		return nil, "", false, err
	}
	var all []wire
	if json.Unmarshal(a.body, &all) != nil {
		return nil, "", false, errNotOurs
	}
	for _, w := range all {
		if w.ID == nil || w.Name == nil {
			return nil, "", false, errNotOurs
		}
		page = append(page, NewPlant{*w.ID, Plant{*w.Name, w.Tag}})
	}
	next, more = nextQuery(a.header)
	return page, next, more && len(page) > 0, nil
}

func (c *Client) stored(ctx context.Context, q request) (Stored, error) {
	a, err := c.do(ctx, q)
	if err != nil {
		return Stored{}, err
	}
	var w wire
	if json.Unmarshal(a.body, &w) != nil || w.ID == nil || w.Name == nil {
		return Stored{}, q.unknown(errNotOurs)
	}
	return Stored{NewPlant{*w.ID, Plant{*w.Name, w.Tag}}, a.header.Get("ETag")}, nil
}

var nextLink = regexp.MustCompile(`<([^>]*)>[^,<]*;\s*rel="?next"?`)

// nextQuery is the query of the next page. Only the query is taken from the link, so the token
// goes to no other host, and a proxy that mounts the service elsewhere does no harm.
func nextQuery(h http.Header) (query string, ok bool) {
	m := nextLink.FindStringSubmatch(strings.Join(h.Values("Link"), ", "))
	if m == nil {
		return "", false
	}
	_, query, ok = strings.Cut(m[1], "?")
	return query, ok
}

// wire is what an answer may hold of a plant.
type wire struct {
	ID   *int64  `json:"id"`
	Name *string `json:"name"`
	Tag  *string `json:"tag"`
}

var errNotOurs = errors.New("the answer is not one of a Plant Store: check the address")

// encode makes a body. The JSON library would put another character for what is not UTF-8.
func encode(v any, p Plant) ([]byte, error) {
	if !utf8.ValidString(p.Name) || p.Tag != nil && !utf8.ValidString(*p.Tag) {
		return nil, errors.New("the name and the tag: expected UTF-8")
	}
	return json.Marshal(v)
}
