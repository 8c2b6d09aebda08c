package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

const (
	tryTimeout    = 15 * time.Second
	maxRetryAfter = 24 * time.Hour
	maxResponse   = 4 << 10 // bytes of a body that are read, to reuse the connection
	topic         = "plant.created"
)

// headers returns the headers of a delivery that is sent at a time.
func (e *endpoint) headers(event string, at time.Time, body []byte) map[string]string {
	secrets := []string{e.Secret}
	if at.Before(e.OldUntil) {
		secrets = append(secrets, e.OldSecret)
	}
	return map[string]string{
		"content-type": "application/json", "webhook-id": event, "webhook-topic": topic,
		"webhook-timestamp": strconv.FormatInt(at.Unix(), 10), "webhook-signature": Sign(secrets, event, at, body),
	}
}

// send makes one request. It returns an error only if ctx ends first.
func (w *Webhooks) send(ctx context.Context, e endpoint, event string, body []byte) (t try, _ error) {
	started := time.Now()
	limited, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, http.MethodPost, e.URL, bytes.NewReader(body))
	if err == nil {
		r.Header.Set("User-Agent", w.userAgent)
		for name, value := range e.headers(event, started, body) {
			r.Header.Set(name, value)
		}
		var response *http.Response
		if response, err = w.client.Do(r); err == nil {
			io.CopyN(io.Discard, response.Body, maxResponse)
			response.Body.Close()
			t.Status, t.retryAfter = response.StatusCode, retryAfter(response, time.Now())
		}
	}
	if err != nil && ctx.Err() != nil {
		return t, ctx.Err()
	}
	t.Time, t.Millis = started.UTC().Truncate(time.Millisecond), time.Since(started).Milliseconds()
	switch {
	case err != nil:
		t.Error = classOf(err)
	case t.Status < 200 || t.Status > 299:
		t.Error = "status"
	}
	return t, nil
}

// retryAfter returns the time in Retry-After of an overloaded receiver, at most maxRetryAfter, or 0.
func retryAfter(r *http.Response, now time.Time) time.Duration {
	switch r.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return 0
	}
	value := r.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(0, at.Sub(now)), maxRetryAfter)
}

// classOf returns the class of an error. Clients do not see the error itself: it may contain text of the receiver.
func classOf(err error) string {
	var timeout net.Error
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var operation *net.OpError
	switch {
	case errors.Is(err, errTarget):
		return "target"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.As(err, &dns):
		return "dns"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &certificate), errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch),
		errors.As(err, &operation) && (operation.Op == "remote error" || operation.Op == "local error"): // TLS alerts
		return "tls"
	}
	return "connection"
}
