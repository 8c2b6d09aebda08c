// Package client calls a Plant Store service.
//
// Every call takes a context and returns when the context ends. A call that fails for a temporary
// reason is retried where that is safe, with growing pauses:
//
//   - Create, Get, Plants and Token are retried after the statuses 429, 502, 503 and 504, when no
//     connection could be made, and when a connection was lost before the response was complete.
//   - Replace and Remove are retried only when the service cannot have made the change: after 429,
//     after a 503 whose error code means that nothing was stored, and when no connection
//     could be made.
//   - The methods for webhooks need the scope webhooks:manage. Those that only read are retried like
//     Get, and the others like Replace.
//
// Use WithRetries to configure this. A response that is not a success is an *Error. A change
// that failed may still have been made if errors.Is(err, ErrUnknown). No error contains the token.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Plant is a plant without its id. A nil Tag means that the plant has no tag, which differs from an
// empty tag. Name and Tag are stored and returned unchanged.
type Plant struct {
	Name string  `json:"name"`
	Tag  *string `json:"tag,omitzero"`
}

// NewPlant is a plant with its id, which the client chooses. Every int64 is a valid id.
type NewPlant struct {
	ID int64 `json:"id"`
	Plant
}

// Stored is a plant as the service stores it. ETag identifies its content, for Replace and Remove.
type Stored struct {
	NewPlant
	ETag string `json:"etag,omitzero"`
}

// Page sets which plants Plants returns and how many it fetches at a time. The zero value returns all.
type Page struct {
	Size  int     // plants per request; a size above 1000 acts as 1000, and 0 is the default of the service
	After *int64  // return only plants with higher ids; nil for all
	Tag   *string // return only plants with exactly this tag; nil for all
	Text  string  // return only plants whose name or tag contains this text, ignoring case; empty for all
}

// Token describes the token of a client.
type Token struct {
	Name    string    `json:"name"`
	Store   string    `json:"store"`            // the one store that it gives access to
	Scopes  []string  `json:"scopes"`           // what it allows, such as plants:read
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Rate    string    `json:"rate,omitzero"`    // requests per second, minute or hour, such as 10/m; empty: unlimited
	Burst   int64     `json:"burst,omitzero"`   // requests at once after a pause; zero: unlimited
}

// Client calls one service with one token. It is safe for concurrent use.
type Client struct {
	base    string // the URL that the paths of requests follow
	token   string
	http    *http.Client
	retries int
	backoff time.Duration
	onWait  func(failed error, wait time.Duration)
	sandbox []byte // what NewSandbox sends
}

// Option configures a Client.
type Option func(*Client)

// WithHTTPClient sets the HTTP client that sends requests, for a different transport or timeout. It
// is copied, and the copy follows no redirects, because a redirected create would become a read.
// The default has a timeout of 30 seconds for each attempt.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) { c.http = h }
}

// WithRetries sets how many times a call is retried and the pause before the first retry. Pauses
// double up to 5 seconds, are shortened at random by up to half, and are added to the time that
// Retry-After asks for. A call fails without waiting if the pause would outlast its context or if
// Retry-After is more than a minute. The default is 5 retries from 100 milliseconds; 0 retries
// nothing.
func WithRetries(n int, backoff time.Duration) Option {
	return func(c *Client) { c.retries, c.backoff = n, max(backoff, 0) }
}

// OnWait sets a function that is called before each pause, with the error of the last attempt. Concurrent calls of the
// client call it concurrently.
func OnWait(report func(failed error, wait time.Duration)) Option {
	return func(c *Client) { c.onWait = report }
}

// New returns a client of the service at a base URL such as http://127.0.0.1:8080, which may have a
// path. It does not connect.
func New(baseURL, token string, options ...Option) (*Client, error) {
	base, err := url.Parse(baseURL)
	switch {
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Hostname() == "":
		return nil, fmt.Errorf("base URL %q is invalid: use one such as http://127.0.0.1:8080", baseURL)
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the base URL must have no user, query or fragment")
	case token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("the token must consist of visible ASCII characters")
	}
	c := &Client{
		base: base.JoinPath("/").String(), token: token, http: &http.Client{Timeout: 30 * time.Second},
		retries: 5, backoff: 100 * time.Millisecond, onWait: func(error, time.Duration) {},
	}
	if shared, ok := http.DefaultTransport.(*http.Transport); ok {
		own := shared.Clone()
		// Many concurrent creates share a commit, so many connections are worth keeping.
		own.MaxIdleConns, own.MaxIdleConnsPerHost = 256, 256
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

// Create stores a plant and returns it as stored. When it returns without an error, the plant would
// survive power loss. Creating the same plant again succeeds and stores nothing, so Create is
// retried after 429, 502, 503, 504 and a lost connection.
//
// An *Error with the number 40009 means that the id belongs to a plant with a different name or tag.
// It is final: this plant is not stored, or, if an earlier attempt stored it, it was replaced since.
//
// If errors.Is(err, ErrUnknown), the plant may have been stored: call Create again. After any other
// error it was not stored.
func (c *Client) Create(ctx context.Context, p NewPlant) (Plant, error) {
	body, err := encode(&p.ID, p.Plant)
	if err != nil {
		return Plant{}, err
	}
	req := request{method: http.MethodPost, path: "plants", body: body, success: http.StatusOK, idempotent: true}
	got, _, err := decode[plantJSON](ctx, c, req)
	if err != nil {
		return Plant{}, err
	}
	if got.Name == nil {
		return Plant{}, req.unknown(errNotPlantStore)
	}
	return Plant{*got.Name, got.Tag}, nil
}

// Get returns a plant. It is retried like Create. An *Error with the number 40401 means that no plant
// has the id.
func (c *Client) Get(ctx context.Context, id int64) (Stored, error) {
	return c.stored(ctx, request{method: http.MethodGet, path: plantPath(id), success: http.StatusOK})
}

// Any, as the ifMatch of Replace or Remove, matches every plant, whatever its content.
const Any = "*"

// Replace changes the name and the tag of an existing plant if it still has the ETag ifMatch, or
// whatever its ETag is if ifMatch is Any. An empty ifMatch is an error, so that a caller that failed
// to read the ETag does not overwrite another client's change.
//
// Replace is retried only if nothing can have been changed: after 429, after a 503
// whose error code means that nothing was stored, and when no connection could be made. So an *Error with the
// number 40401 (no such plant) or 41201 (a different ETag) is final: nothing was replaced.
//
// If errors.Is(err, ErrUnknown), the plant may have been replaced: Get it. Calling Replace again
// could overwrite a later change of another client. With the same ifMatch it cannot, but then 41201
// may be caused by the first call's own change, and 40401 means only that the plant no longer exists.
func (c *Client) Replace(ctx context.Context, id int64, to Plant, ifMatch string) (Stored, error) {
	body, err := encode(nil, to)
	if err := cmp.Or(err, checkIfMatch(ifMatch)); err != nil {
		return Stored{}, err
	}
	return c.stored(ctx, request{
		method: http.MethodPut, path: plantPath(id), body: body, ifMatch: ifMatch, success: http.StatusOK,
	})
}

// Remove removes a plant. ifMatch, retries and the numbers 40401 and 41201 are as in Replace.
//
// If errors.Is(err, ErrUnknown), the plant may have been removed: Get it; 40401 means that it no
// longer exists. Calling Remove again could remove a plant that was created since.
func (c *Client) Remove(ctx context.Context, id int64, ifMatch string) error {
	if err := checkIfMatch(ifMatch); err != nil {
		return err
	}
	_, err := c.do(ctx, request{
		method: http.MethodDelete, path: plantPath(id), ifMatch: ifMatch, success: http.StatusNoContent,
	})
	return err
}

// Plants returns the plants of the store in the order of their ids. It requests a page when the
// iteration reaches it, keeps one page in memory, and stops after the first error. Each request is
// retried like Create. Plants created with an id that the iteration has passed are not returned.
//
// With a Tag or a Text, the service examines up to 10,000 plants for a request. Where few plants
// match, Plants sends many requests before it returns the next one.
func (c *Client) Plants(ctx context.Context, from Page) iter.Seq2[NewPlant, error] {
	return func(yield func(NewPlant, error) bool) {
		query := url.Values{}
		if from.Size != 0 {
			query.Set("limit", strconv.Itoa(from.Size))
		}
		if from.After != nil {
			query.Set("after", strconv.FormatInt(*from.After, 10))
		}
		if from.Tag != nil {
			query.Set("tag", *from.Tag)
		}
		if from.Text != "" {
			query.Set("q", from.Text)
		}
		for {
			page, next, err := c.page(ctx, query)
			if err != nil {
				yield(NewPlant{}, err)
				return
			}
			for _, p := range page {
				if !yield(p, nil) {
					return
				}
			}
			if next == nil {
				return
			}
			query.Set("after", strconv.FormatInt(*next, 10))
		}
	}
}

// Token returns the name, store, scopes, expiry and rate of the client's token. It needs no scope, does
// not count against the rate of the token, and is retried like Create.
func (c *Client) Token(ctx context.Context) (Token, error) {
	got, err := call[Token](ctx, c, http.MethodGet, "token", http.StatusOK, nil)
	if err == nil && (got.Name == "" || got.Store == "") {
		err = errNotPlantStore
	}
	return got, err
}

func checkIfMatch(ifMatch string) error {
	if strings.TrimSpace(ifMatch) == "" {
		return errors.New("ifMatch is empty: use the ETag of the plant, or client.Any")
	}
	return nil
}

func plantPath(id int64) string { return "plants/" + strconv.FormatInt(id, 10) }

func webhookPath(id string) string { return "webhooks/" + url.PathEscape(id) }

// page returns the plants of a page, and the id that the next page starts after, or nil if it is the last.
func (c *Client) page(ctx context.Context, query url.Values) (page []NewPlant, next *int64, err error) {
	path := strings.TrimSuffix("plants?"+query.Encode(), "?")
	all, header, err := decode[[]plantJSON](ctx, c, request{method: http.MethodGet, path: path, success: http.StatusOK})
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		if p.ID == nil || p.Name == nil {
			return nil, nil, errNotPlantStore
		}
		page = append(page, NewPlant{*p.ID, Plant{*p.Name, p.Tag}})
	}
	next, err = nextAfter(header)
	return page, next, err
}

// object is the JSON body of a request. Members that are "" or 0 are left out.
type object map[string]any

// call sends a request that has a JSON body unless that is nil, and decodes the response.
func call[T any](ctx context.Context, c *Client, method, path string, success int, body object) (got T, err error) {
	req := request{method: method, path: path, success: success}
	if body != nil {
		maps.DeleteFunc(body, func(_ string, value any) bool { return value == "" || value == 0 })
		if req.body, err = json.Marshal(body); err != nil {
			return got, err
		}
	}
	got, _, err = decode[T](ctx, c, req)
	return got, err
}

// decode sends a request and decodes the response.
func decode[T any](ctx context.Context, c *Client, req request) (got T, header http.Header, err error) {
	resp, err := c.do(ctx, req)
	if err == nil && req.success != http.StatusNoContent && json.Unmarshal(resp.body, &got) != nil {
		err = req.unknown(errNotPlantStore)
	}
	return got, resp.header, err
}

func (c *Client) stored(ctx context.Context, req request) (Stored, error) {
	got, header, err := decode[plantJSON](ctx, c, req)
	if err != nil {
		return Stored{}, err
	}
	if got.ID == nil || got.Name == nil {
		return Stored{}, req.unknown(errNotPlantStore)
	}
	return Stored{NewPlant{*got.ID, Plant{*got.Name, got.Tag}}, header.Get("ETag")}, nil
}

var nextLink = regexp.MustCompile(`<([^>]*)>[^,<]*;\s*rel="?next"?`)

// nextAfter returns the parameter after of the link to the next page. The rest of the link is ignored, so the
// token is never sent to another host, and a proxy may serve the API under a different path.
func nextAfter(h http.Header) (*int64, error) {
	m := nextLink.FindStringSubmatch(strings.Join(h.Values("Link"), ", "))
	if m == nil {
		return nil, nil
	}
	link, err := url.Parse(m[1])
	if err == nil {
		var id int64
		if id, err = strconv.ParseInt(link.Query().Get("after"), 10, 64); err == nil {
			return &id, nil
		}
	}
	return nil, fmt.Errorf("the service returned an invalid link to the next page, %q", m[1])
}

// plantJSON is a plant in a response. A nil field is absent.
type plantJSON struct {
	ID   *int64  `json:"id"`
	Name *string `json:"name"`
	Tag  *string `json:"tag"`
}

var errNotPlantStore = errors.New("the response is not from a Plant Store: check the base URL")

// unescaped reverses what the encoder escapes for JavaScript only. It replaces a backslash pair too, so that what
// follows one is not taken for an escape.
var unescaped = strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")

// encode returns a plant as a request body, with its id unless that is nil. Only what JSON requires is escaped, so that
// a plant that was read can be created again under the same limit of the service. It refuses text that is not UTF-8.
func encode(id *int64, p Plant) ([]byte, error) {
	if !utf8.ValidString(p.Name) || p.Tag != nil && !utf8.ValidString(*p.Tag) {
		return nil, errors.New("the name and the tag must be valid UTF-8")
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		ID *int64 `json:"id,omitzero"`
		Plant
	}{id, p})
	return []byte(unescaped.Replace(strings.TrimSuffix(body.String(), "\n"))), err
}
