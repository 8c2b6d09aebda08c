package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// clientError is an error with a message for the client, more specific than the text of its kind.
type clientError struct {
	kind    error // in failures
	message string
	field   string // that is wrong, or ""
}

func (e *clientError) Error() string { return e.message }
func (e *clientError) Unwrap() error { return e.kind }

// Failf returns an error with a message for the client. kind is an error of the catalogue.
func Failf(kind error, format string, args ...any) error {
	return &clientError{kind, fmt.Sprintf(format, args...), ""}
}

// FailField is Failf for one field, with which the message starts: a member of the body, a parameter or a header.
func FailField(kind error, field, format string, args ...any) error {
	return &clientError{kind, field + " " + fmt.Sprintf(format, args...), field}
}

// classify returns the entry of the catalogue for an error, and the message for the client. The entry of a request that
// its client has abandoned is zero: there is no response.
func classify(err error) (Failure, string) {
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return f.Failure, messageOf(err, f.err)
		}
	}
	switch {
	case errors.Is(err, context.Canceled): // the client has closed its connection
		return Failure{}, ""
	case errors.Is(err, context.DeadlineExceeded):
		return classify(storage.ErrUnavailable)
	}
	return classify(errInternal)
}

// messageOf returns the text of the part of an error that is written for clients. The rest is for the log.
func messageOf(err, kind error) string {
	if e, ok := errors.AsType[*rate.Exceeded](err); ok { // with the time to wait
		return e.Error()
	}
	if e, ok := errors.AsType[*plant.Invalid](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*token.Rejected](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*clientError](err); ok {
		return e.message
	}
	return kind.Error()
}

// writeFailure writes an Error response and returns its entry in the catalogue. It reports false if it wrote nothing,
// because the client has closed its connection. The message does not depend on whether a text of the client is part of
// a secret: a difference would let clients guess the secret piece by piece.
func (x *exchange) writeFailure(err error) (f Failure, written bool) {
	f, message := classify(err)
	if f.Number == 0 {
		x.status = statusAbandoned
		return f, false
	}
	h := x.Header()
	switch f.Status() {
	case http.StatusUnauthorized:
		challenge := `Bearer realm="plantstore"`
		if !errors.Is(err, token.ErrMissing) && !errors.Is(err, token.ErrMalformed) {
			challenge += `, error="invalid_token", error_description="` + message + `"`
		}
		h.Set("WWW-Authenticate", challenge)
	case http.StatusTooManyRequests:
		if e, ok := errors.AsType[*rate.Exceeded](err); ok {
			h.Set("Retry-After", strconv.FormatInt(rate.Seconds(e.Wait), 10))
		}
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	h.Set("Cache-Control", "no-store")
	writeJSON(x, f.Status(), appendError(nil, f.Number, message, fieldOf(f, err)))
	return f, true
}

func appendError(b []byte, number int32, message, field string) []byte {
	b = strconv.AppendInt(append(b, `{"error":`...), int64(number), 10)
	b, _ = jsontext.AppendQuote(append(b, `,"message":`...), strings.ToValidUTF8(message, "\ufffd"))
	if field != "" {
		b = append(append(append(b, `,"field":"`...), field...), '"')
	}
	return append(b, '}')
}

// fields has the errors that always have the same field.
var fields = map[int32]string{
	40009: "id", 40018: contentType, 40019: contentType, 40020: contentType, 40021: "Content-Encoding", 40025: "id",
	40026: "limit", 40027: "after", 40030: "Expect", 40036: "Prefer", 40101: authorization, 40102: authorization,
	40103: authorization, 40104: authorization, 40105: authorization, 40106: authorization, 40107: authorization,
	50101: "Transfer-Encoding",
}

const contentType, authorization = "Content-Type", "Authorization"

// fieldOf returns the member, parameter or header that is wrong, if it is exactly one of this API: never a text of the
// client.
func fieldOf(f Failure, err error) string {
	if e, ok := errors.AsType[*plant.Invalid](err); ok {
		return e.Field()
	}
	if e, ok := errors.AsType[*clientError](err); ok && e.field != "" {
		return e.field
	}
	return fields[f.Number]
}

var errNoTLS = Failf(errMalformed, "the service accepts only TLS; use https:// in place of http://")

// libraryErrors has the error of each status that net/http writes without calling our handlers. 426 stands for a client
// that does not use TLS.
var libraryErrors = map[int]error{
	http.StatusBadRequest:                  errMalformed,
	http.StatusUpgradeRequired:             errNoTLS,
	http.StatusNotFound:                    errNoRoute,
	http.StatusMethodNotAllowed:            errMethod,
	http.StatusExpectationFailed:           errExpectation,
	http.StatusRequestHeaderFieldsTooLarge: errHeaderTooLarge,
	http.StatusNotImplemented:              errCoding,
	http.StatusHTTPVersionNotSupported:     errProtocol,
}

// LibraryFailure returns the Error body in place of a response that net/http writes without calling our handlers.
// It reports false for any other status.
func LibraryFailure(status int) (f Failure, body []byte, ok bool) {
	err, ok := libraryErrors[status]
	if !ok {
		return Failure{}, nil, false
	}
	f, message := classify(err)
	return f, appendError(nil, f.Number, message, fieldOf(f, err)), true
}

const refusalHead = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" +
	"X-Request-Id: %s\r\nRetry-After: 1\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"

var refusalBody = appendError(nil, 50301, "all connections are in use; retry later", "")

// Refusal returns the whole response to a connection over the limit, whose request is not read.
func Refusal() []byte {
	return append(fmt.Appendf(nil, refusalHead, len(refusalBody), NewRequestID()), refusalBody...)
}
