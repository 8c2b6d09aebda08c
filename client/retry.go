package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
)

const (
	maxAnswer  = 80 << 20 // a page of 1000 plants of the largest size that the service takes by default
	maxError   = 64 << 10
	maxPause   = 5 * time.Second
	maxAsked   = time.Minute // the longest Retry-After that is waited for
	taken      = 40009       // the number of an id that another plant has
	unknownYet = 50302       // the number of an outcome that the service does not know
)

// ErrUnknown is in the chain of an error of Create, Replace and Remove when the change may have been made
// although the call failed: a try has had no answer, or one that does not rule it out, such as 50302 or
// the 502 of a proxy, and no later one has told. An error without it is a certain failure.
//
// errors.Is(err, ErrUnknown) is what tells. The *Error that may be there too is the last answer, for its
// details: after a lost connection it can well be one that says of its own try that nothing was stored.
var ErrUnknown = errors.New("it is not known whether the change was made")

// Error is an answer that is not a success. Where ErrUnknown is in the same chain, it is not the outcome.
type Error struct {
	Status     int           // of HTTP
	Number     int32         // of the service's catalogue; 0 where something else answered, such as a proxy
	Message    string        // one sentence for a person
	RequestID  string        // leads to the service's log
	RetryAfter time.Duration // that the service asks for, or 0
}

// Error is the number and the message, without characters that a terminal would obey, and for a
// fault of the service the request id, which its operator will ask for.
func (e *Error) Error() string {
	text := fmt.Sprintf("%d: %s", e.Number, e.Message)
	if e.Number == 0 {
		text = fmt.Sprintf("HTTP status %d: %s", e.Status, e.Message)
	}
	if e.Status >= 500 && e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// request is one call. It is safe when a second time changes nothing.
type request struct {
	method          string
	url             *url.URL
	body            []byte
	ifMatch, prefer string
	want            int // the status of a success
	safe            bool
}

type answer struct {
	header http.Header
	body   []byte
}

// do sends a request until it is answered or must not be sent again. A later refusal says nothing of an
// earlier try that may have been carried out.
func (c *Client) do(ctx context.Context, q request) (answer, error) {
	doubt := false
	for try := 1; ; try++ {
		a, err := c.send(ctx, q)
		if err == nil {
			return a, nil
		}
		doubt = doubt && !settles(err) || inDoubt(err)
		if try > 1 {
			err = fmt.Errorf("%w (tried %d times)", err, try)
		}
		end := try > c.retries || ctx.Err() != nil || !q.repeatable(err)
		if !end {
			if late := c.pause(ctx, try, err); late != nil {
				err, end = fmt.Errorf("%w; %w", err, late), true
			}
		}
		switch {
		case end && doubt:
			return answer{}, q.unknown(err)
		case end:
			return answer{}, err
		}
	}
}

// unknown is the error of a request that may have been carried out. A read changes nothing, so there is
// nothing to be in doubt about.
func (q request) unknown(err error) error {
	if q.method == http.MethodGet {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// inDoubt reports whether a try may have been carried out although it ended in an error.
func inDoubt(err error) bool {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return !isUnsent(err)
	case e.saysNothingStored():
		return false
	}
	return e.Status < 300 || e.Status >= 500 // also a success that is not the service's: who knows what it did
}

// settles reports whether an answer ends the doubt that an earlier try has left. Only a create is tried
// again after one. When its id has another plant then, this one is not there, whatever has happened
// meanwhile. What a 401 or 404 refuses is only the later try.
func settles(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Number == taken
}

// saysNothingStored reports whether it is a 503 of the service's catalogue, all of which but one say that.
func (e *Error) saysNothingStored() bool {
	return e.Number/100 == http.StatusServiceUnavailable && e.Number != unknownYet
}

// unsent is an error from before a connection was there to send a request on.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

func isUnsent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	_, ok := errors.AsType[unsent](err)
	return ok
}

// repeatable reports whether a request may be sent again after an error.
func (q request) repeatable(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		switch {
		case e.RetryAfter > maxAsked:
			return false
		case e.Status == http.StatusTooManyRequests:
			return true
		case e.saysNothingStored():
			return true
		}
		return q.safe && e.Status >= http.StatusBadGateway && e.Status <= http.StatusGatewayTimeout
	}
	return isUnsent(err) || q.safe && !errors.Is(err, errTooLarge)
}

// pause waits before the next try. It returns an error when the context ends before that.
func (c *Client) pause(ctx context.Context, try int, failed error) error {
	d := maxPause
	if try < 32 && c.backoff < maxPause>>(try-1) {
		d = c.backoff << (try - 1)
	}
	d -= rand.N(d/2 + 1)
	if e, ok := errors.AsType[*Error](failed); ok {
		d += e.RetryAfter
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errTooLarge = fmt.Errorf("the answer is larger than %d bytes: ask for smaller pages", maxAnswer)

// send makes one try. An answer that is not the success that is wanted is an *Error.
func (c *Client) send(ctx context.Context, q request) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, unsent{err}
	}
	var asked, got atomic.Bool // for a connection; neither with a transport that does not tell
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { got.Store(true) },
	})
	r, err := http.NewRequestWithContext(traced, q.method, q.url.String(), bytes.NewReader(q.body))
	if err != nil {
		return answer{}, unsent{err}
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	for name, value := range map[string]string{"If-Match": q.ifMatch, "Prefer": q.prefer} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	if q.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(r)
	switch {
	case err != nil && asked.Load() && !got.Load(): // the name, the dial or TLS failed, or took too long
		return answer{}, unsent{err}
	case err != nil:
		return answer{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != q.want {
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxError)) // the status says enough where it breaks off
		return answer{}, newError(response, body)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, fmt.Errorf("%s %s: the answer broke off: %w", q.method, q.url, err)
	case len(body) > maxAnswer:
		return answer{}, errTooLarge
	}
	return answer{response.Header, body}, nil
}

func newError(response *http.Response, body []byte) *Error {
	e := &Error{Status: response.StatusCode, RequestID: response.Header.Get("X-Request-Id"), RetryAfter: retryAfter(response.Header.Get("Retry-After"))}
	var said struct {
		Error   int32  `json:"error"`
		Message string `json:"message"`
	}
	switch location := response.Header.Get("Location"); {
	case json.Unmarshal(body, &said) == nil && int(said.Error)/100 == e.Status:
		e.Number, e.Message = said.Error, said.Message
	case e.Status/100 == 3 && location != "":
		e.Message = fmt.Sprintf("the service redirects to %q, which is not followed: use that address", location)
	default:
		e.Message = errNotOurs.Error()
	}
	return e
}

// retryAfter reads both forms of the header. What is neither, or past, is 0.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
