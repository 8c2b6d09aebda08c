package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	maxResponse   = 80 << 20 // more than a page with one plant of the largest body that serve accepts
	maxErrorBody  = 64 << 10
	maxPause      = 5 * time.Second
	maxRetryAfter = time.Minute // a call that is asked to wait longer fails at once

	numberTaken   = 40009 // the id belongs to a different plant
	numberUnknown = 50302 // the service does not know the outcome
)

// ErrUnknown is in the chain of an error of a method that makes a change, such as Create, if it may have been made
// although the call failed: some attempt got no response, or a response that does not exclude the change,
// such as 50302 or the 502 of a proxy, and no later response settled it. An error without ErrUnknown is
// final: the change was not made.
//
// Test for it with errors.Is(err, ErrUnknown). The chain may also contain an *Error. It describes only the
// last attempt, which may have stored nothing although an earlier attempt has.
var ErrUnknown = errors.New("the outcome is unknown, the change may have been made")

// Error is a response that is not a success. If ErrUnknown is in the same chain, it is not the outcome
// of the call.
type Error struct {
	Status     int           // the HTTP status
	Number     int32         // the error code of the service; 0 if something else responded, such as a proxy
	Message    string        // one sentence for a person, as received
	Field      string        // the member, parameter or header that is wrong; "" unless it is exactly one
	RequestID  string        // identifies the request in the log of the service
	RetryAfter time.Duration // how long the service asks to wait, or 0
}

// Error returns the number and the message, and for a failure of the service also the request id, which
// its operator needs. The message may have characters that a terminal interprets.
func (e *Error) Error() string {
	text := fmt.Sprintf("%d: %s", e.Number, e.Message)
	if e.Number == 0 {
		text = fmt.Sprintf("HTTP status %d: %s", e.Status, e.Message)
	}
	if e.Status >= 500 && e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// request is one call.
type request struct {
	method     string
	path       string // below the base URL; it may have a query
	body       []byte
	ifMatch    string
	success    int  // the expected status
	idempotent bool // sending it twice has the same effect as sending it once, as for every GET
}

type response struct {
	header http.Header
	body   []byte
}

// do sends a request until it succeeds or must not be sent again. The error of the last attempt does
// not show whether an earlier attempt made the change, so do keeps track of that.
func (c *Client) do(ctx context.Context, req request) (response, error) {
	unknown := false
	for attempt := 1; ; attempt++ {
		resp, err := c.send(ctx, req)
		if err == nil {
			return resp, nil
		}
		unknown = unknown && !provesNotStored(err) || mayHaveChanged(err)
		if attempt > 1 {
			err = fmt.Errorf("%w (tried %d times)", err, attempt)
		}
		last := attempt > c.retries || ctx.Err() != nil || !req.retryable(err)
		if !last {
			if waitErr := c.pause(ctx, attempt, err); waitErr != nil {
				err, last = fmt.Errorf("%w; %w", err, waitErr), true
			}
		}
		switch {
		case last && unknown:
			return response{}, req.unknown(err)
		case last:
			return response{}, err
		}
	}
}

// unknown adds ErrUnknown to the error of a request that may have made a change. A read makes none.
func (req request) unknown(err error) error {
	if req.method == http.MethodGet {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// mayHaveChanged reports whether an attempt that ended in err may have made its change.
func mayHaveChanged(err error) bool {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return !isUnsent(err)
	case e.nothingStored(), e.Number/100 == http.StatusNotImplemented:
		return false
	}
	return e.Status < 300 || e.Status >= 500 // an unexpected success may come from anything
}

// provesNotStored reports whether err settles an unknown earlier attempt. Only a create is retried after
// one, and if its id belongs to a different plant now, this plant is not stored. A 401 or 404 is about
// the last attempt only.
func provesNotStored(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Number == numberTaken
}

// nothingStored reports whether e is one of the service's own 503 responses. All but one guarantee that
// nothing was stored.
func (e *Error) nothingStored() bool {
	return e.Number/100 == http.StatusServiceUnavailable && e.Number != numberUnknown
}

// unsent is an error from before there was a connection to send a request on.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

func isUnsent(err error) bool {
	_, ok := errors.AsType[unsent](err)
	return ok
}

// retryable reports whether a request may be sent again after an error.
func (req request) retryable(err error) bool {
	idempotent := req.idempotent || req.method == http.MethodGet
	if e, ok := errors.AsType[*Error](err); ok {
		switch {
		case e.RetryAfter > maxRetryAfter:
			return false
		case e.Status == http.StatusTooManyRequests, e.nothingStored():
			return true
		}
		return idempotent && e.Status >= http.StatusBadGateway && e.Status <= http.StatusGatewayTimeout
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return !untrusted && (isUnsent(err) || idempotent && !errors.Is(err, errTooLarge))
}

// pause waits before the next attempt. It returns an error if the context ends first, and does so
// without waiting if its deadline is too early.
func (c *Client) pause(ctx context.Context, attempt int, failed error) error {
	d := maxPause
	if c.backoff < maxPause>>(attempt-1) {
		d = c.backoff << (attempt - 1)
	}
	d -= rand.N(d/2 + 1)
	if e, ok := errors.AsType[*Error](failed); ok {
		d += e.RetryAfter
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return context.DeadlineExceeded
	}
	c.onWait(failed, d)
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errTooLarge = fmt.Errorf("the response is larger than %d bytes: request smaller pages", maxResponse)

// send makes one attempt. A response without the expected status is an *Error.
func (c *Client) send(ctx context.Context, req request) (response, error) {
	if err := ctx.Err(); err != nil {
		return response{}, unsent{err}
	}
	var wantedConn, gotConn atomic.Bool // both stay false with a transport that does not support tracing
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { wantedConn.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { gotConn.Store(true) },
	})
	r, err := http.NewRequestWithContext(traced, req.method, c.base+req.path, bytes.NewReader(req.body))
	if err != nil {
		return response{}, unsent{err}
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if req.ifMatch != "" {
		r.Header.Set("If-Match", req.ifMatch)
	}
	if req.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(r)
	switch {
	case err != nil && wantedConn.Load() && !gotConn.Load(): // resolving, dialing or TLS failed or timed out
		return response{}, unsent{err}
	case err != nil:
		return response{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != req.success {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // the status is enough if reading fails
		return response{}, newError(resp, body)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return response{}, fmt.Errorf("%s %s: the response is incomplete: %w", req.method, r.URL, err)
	case len(body) > maxResponse:
		return response{}, errTooLarge
	}
	return response{resp.Header, body}, nil
}

func newError(resp *http.Response, body []byte) *Error {
	e := &Error{
		Status:     resp.StatusCode,
		RequestID:  resp.Header.Get("X-Request-Id"),
		RetryAfter: retryAfter(resp.Header.Get("Retry-After")),
	}
	var content struct {
		Error   int32  `json:"error"`
		Message string `json:"message"`
		Field   string `json:"field"`
	}
	switch location := resp.Header.Get("Location"); {
	case json.Unmarshal(body, &content) == nil && int(content.Error)/100 == e.Status:
		e.Number, e.Message, e.Field = content.Error, content.Message, content.Field
	case e.Status/100 == 3 && location != "":
		e.Message = fmt.Sprintf("the service redirects to %q: use that base URL", location)
	default:
		e.Message = errNotPlantStore.Error()
	}
	return e
}

// retryAfter parses both forms of the header. It returns 0 for an invalid value and for a past time.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
