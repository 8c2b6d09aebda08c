package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/store"
	"plantstore/internal/token"
)

// Failure is one line of the catalogue. Its number is the HTTP status × 100 + n and never changes
// its meaning.
type Failure struct {
	Number  int32
	Meaning string // for the catalogue
	Remedy  string // for the catalogue
}

// Status is the HTTP status that a failure is answered with.
func (f Failure) Status() int { return int(f.Number) / 100 }

// The errors of the edge itself.
var (
	errTooLarge        = errors.New("the body is too large")
	errNoType          = errors.New("the header Content-Type: expected application/json, found no such header")
	errWrongType       = errors.New("the header Content-Type: expected application/json")
	errRepeatedType    = errors.New("the header Content-Type: expected it once, found it several times")
	errEncoding        = errors.New("the header Content-Encoding: expected none or identity")
	errBroken          = errors.New("the body broke off or is not framed as HTTP says")
	errSlow            = errors.New("the body did not arrive in time")
	errMalformed       = errors.New("the request is not HTTP/1.1 as this service reads it")
	errNoRoute         = errors.New("no such path")
	errMethod          = errors.New("the path does not have this method")
	errHeaderTooLarge  = errors.New("the request line and headers are too large")
	errCoding          = errors.New("the transfer coding is not supported")
	errProtocol        = errors.New("the protocol version is not supported")
	errInternal        = errors.New("the service failed; the fault is logged under the request id")
	errBadID           = errors.New("the path: expected /plants/{id} with an integer that an int64 holds")
	errBadLimit        = errors.New("the query parameter limit: expected an integer from 1 to 1000")
	errBadAfter        = errors.New("the query parameter after: expected an integer that an int64 holds")
	errExpectation     = errors.New("the header Expect: expected none or 100-continue")
	errBadQuery        = errors.New("the query: expected well-formed parameters, each once")
	errBadPrecondition = errors.New("the header If-Match: expected * or entity tags such as \"x\"")
	errRate            = errors.New("the token is over its rate")
)

// failures maps every error that a handler returns to its line of the catalogue. The first
// match counts; no match is errInternal, with no detail.
var failures = []struct {
	err error
	Failure
}{
	{invalid(plant.Empty), Failure{40001, "The body is empty.", "Send a JSON object."}},
	{invalid(plant.Syntax), Failure{40002, "The body is not JSON.", "Mend the JSON at the place that the message names."}},
	{invalid(plant.InvalidUTF8), Failure{40003, "The body is not UTF-8.", "Encode it as UTF-8."}},
	{invalid(plant.ByteOrderMark), Failure{40004, "The body starts with a byte order mark.", "Send it without one."}},
	{invalid(plant.LoneSurrogate), Failure{40005, "A string has half of a surrogate pair.", "Escape the whole pair, or send the character itself."}},
	{invalid(plant.Trailing), Failure{40006, "Something follows the JSON value.", "Send one value only."}},
	{invalid(plant.DuplicateName), Failure{40007, "A member name stands twice in an object, counted after unescaping.", "Give each name once."}},
	{invalid(plant.TooDeep), Failure{40008, "The body is nested more than 10 000 levels deep.", "Send a flatter body."}},
	{plant.ErrTaken, Failure{40009, "The id belongs to a plant with another name or tag.", "Choose another id. The same id with the same content again would be 200."}},
	{invalid(plant.NotObject), Failure{40010, "The body is JSON, but not an object.", "Send an object."}},
	{invalid(plant.Missing), Failure{40011, "A required member is missing.", "Add it. Names are case-sensitive."}},
	{invalid(plant.Null), Failure{40012, "A member is null.", "Give it a value, or leave tag out."}},
	{invalid(plant.NotInteger), Failure{40013, "The id is not an integer.", "Send a JSON integer, not a string or a fraction."}},
	{invalid(plant.OutOfRange), Failure{40014, "The id is an integer that an int64 does not hold.", "Choose one from -2^63 to 2^63 - 1."}},
	{invalid(plant.NotString), Failure{40015, "The name or tag is not a string.", "Send a JSON string."}},
	{invalid(plant.ZeroCharacter), Failure{40016, "The name or tag contains U+0000.", "Take that character out."}},
	{errTooLarge, Failure{40017, "The body is larger than the service accepts.", "Send a smaller one, or raise --max-body."}},
	{errNoType, Failure{40018, "The request has no Content-Type.", "Send Content-Type: application/json."}},
	{errWrongType, Failure{40019, "The Content-Type is not application/json, alone or with charset=utf-8.", "Send Content-Type: application/json."}},
	{errRepeatedType, Failure{40020, "The request has several Content-Type headers.", "Send one."}},
	{errEncoding, Failure{40021, "The body has a Content-Encoding.", "Send it as it is, not compressed."}},
	{errBroken, Failure{40022, "The body broke off, or its framing is wrong.", "Send as many bytes as Content-Length says, or well-formed chunks."}},
	{errSlow, Failure{40023, "The body did not arrive in time.", "Send it faster."}},
	{errMalformed, Failure{40024, "The request is not well-formed HTTP.", "Use an HTTP library."}},
	{errBadID, Failure{40025, "The id in the path is not an int64.", "Write it as decimal digits, with a minus where it is negative."}},
	{errBadLimit, Failure{40026, "The limit is not an integer from 1 to 1000.", "Choose one in that range."}},
	{errBadAfter, Failure{40027, "The cursor is not an int64.", "Follow the Link header of the page before."}},
	{errBadPrecondition, Failure{40028, "The If-Match header is not a list of entity tags.", "Send an ETag as the service gave it."}},
	{errBadQuery, Failure{40029, "The query string is not well-formed, or repeats a parameter.", "Give limit and after once each."}},
	{errExpectation, Failure{40030, "The Expect header is not 100-continue.", "Leave it out."}},

	{token.ErrMissing, Failure{40101, "The request has no credential.", "Send Authorization: Bearer <ACCESS_TOKEN>."}},
	{token.ErrMalformed, Failure{40102, "The Authorization header is repeated or not a bearer credential.", "Send one header of the form Authorization: Bearer <ACCESS_TOKEN>."}},
	{token.ErrMistyped, Failure{40103, "The credential is not a token of this service: its form or checksum is wrong.", "Copy the whole token."}},
	{token.ErrInvalid, Failure{40104, "The credential is not known.", "Have a token issued on this database."}},
	{token.ErrExpired, Failure{40105, "The credential has expired.", "Have a new token issued."}},
	{token.ErrRevoked, Failure{40106, "The credential was revoked.", "Have a new token issued."}},
	{token.ErrScope, Failure{40301, "The credential does not have the scope that the operation needs.", "Have a token with that scope issued."}},

	{plant.ErrNotFound, Failure{40401, "No plant of the store has the id.", "Create it first."}},
	{errNoRoute, Failure{40402, "The path is not one of the service.", "See /openapi.json for those that are."}},
	{errMethod, Failure{40501, "The path does not have the method.", "See the Allow header."}},
	{plant.ErrChanged, Failure{41201, "The plant is not the one that If-Match names.", "Read it again, then decide."}},
	{errRate, Failure{42901, "The token is over its rate. Nothing was done.", "Retry after the time that Retry-After gives; RateLimit-Policy tells what is allowed."}},
	{token.ErrFailures, Failure{42902, "Too many credentials from the address were not good, and this one is not known to the process. Nothing was done.", "Retry after the time that Retry-After gives."}},
	{errHeaderTooLarge, Failure{43101, "The request line and headers are too large.", "Send fewer or shorter headers."}},

	{errInternal, Failure{50001, "The service failed.", "Tell the operator the X-Request-Id."}},
	{errCoding, Failure{50101, "The Transfer-Encoding is not supported.", "Use chunked or Content-Length."}},
	{store.ErrUnknown, Failure{50302, "It is not known whether the plant was stored.", "Send the same request again: a create can be repeated safely."}},
	{store.ErrBusy, Failure{50301, "The service has as much work as it can take. Nothing was stored.", "Retry after the time that Retry-After gives."}},
	{store.ErrFull, Failure{50304, "The disk of the database is full. Nothing was stored.", "Retry later; the operator must make room."}},
	{store.ErrUnavailable, Failure{50303, "The database can't be written or reached. Nothing was stored.", "Retry later; the operator sees why on /readyz."}},
	{store.ErrStopping, Failure{50305, "The service is stopping. Nothing was stored.", "Retry: another process may answer."}},
	{errProtocol, Failure{50501, "The HTTP version is not supported.", "Use HTTP/1.1."}},
}

// Catalogue lists every failure in the order of the numbers.
func Catalogue() []Failure {
	all := make([]Failure, len(failures))
	for i, f := range failures {
		all[i] = f.Failure
	}
	slices.SortFunc(all, func(a, b Failure) int { return int(a.Number - b.Number) })
	return all
}

// invalid stands for every *plant.Invalid of one reason.
type invalid plant.Reason

func (i invalid) Error() string { return "an invalid body" }

// busy is a store.ErrBusy that has nothing to do with creates that wait. Its text is for the client.
type busy string

func (b busy) Error() string { return string(b) }
func (b busy) Unwrap() error { return store.ErrBusy }

// classify finds the line of the catalogue and the sentence for the client.
func classify(err error) (Failure, string) {
	body, isBody := errors.AsType[*plant.Invalid](err)
	for _, f := range failures {
		if reason, ok := f.err.(invalid); ok {
			if isBody && body.Reason == plant.Reason(reason) {
				return f.Failure, body.Error()
			}
			continue
		}
		if errors.Is(err, f.err) {
			if b, ok := errors.AsType[busy](err); ok {
				return f.Failure, b.Error()
			}
			if f.Status() >= 500 {
				return f.Failure, f.err.Error() // what the database said is for the log
			}
			return f.Failure, err.Error()
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return classify(errBroken)
	case errors.Is(err, context.DeadlineExceeded):
		return classify(store.ErrUnavailable)
	}
	return classify(errInternal)
}

// secret finds tokens that a client has put where they do not belong, such as the path.
var secret = regexp.MustCompile(`plant_[0-9A-Za-z]{20,}`)

// masked is a text without tokens, for answers and the log.
func masked(text string) string {
	if !strings.Contains(text, "plant_") {
		return text
	}
	return secret.ReplaceAllString(text, "plant_…")
}

// writeFailure answers with an Error body. It returns the catalogue number.
func writeFailure(w http.ResponseWriter, err error) int32 {
	f, message := classify(err)
	message = masked(message)
	h := w.Header()
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
	writeJSON(w, f.Status(), appendError(nil, f.Number, message))
	return f.Number
}

func appendError(b []byte, number int32, message string) []byte {
	b = strconv.AppendInt(append(b, `{"error":`...), int64(number), 10)
	b, _ = jsontext.AppendQuote(append(b, `,"message":`...), strings.ToValidUTF8(message, "\ufffd"))
	return append(b, '}')
}

// LibraryFailure is the Error for what the HTTP library answers by itself, before any handler
// runs. It reports false for a status that the library is not known to write.
func LibraryFailure(status int) (f Failure, body []byte, ok bool) {
	err, ok := map[int]error{
		http.StatusExpectationFailed:           errExpectation,
		http.StatusBadRequest:                  errMalformed,
		http.StatusRequestHeaderFieldsTooLarge: errHeaderTooLarge,
		http.StatusNotImplemented:              errCoding,
		http.StatusHTTPVersionNotSupported:     errProtocol,
	}[status]
	if !ok {
		return Failure{}, nil, false
	}
	f, message := classify(err)
	return f, appendError(nil, f.Number, message), true
}

var refusalBody = appendError(nil, 50301, "as many connections as there may be are at work")

// Refusal is a whole answer for a connection that there is no room for: what it asks is not read.
func Refusal() []byte {
	return fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Request-Id: %s\r\nRetry-After: 1\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n%s",
		len(refusalBody), NewRequestID(), refusalBody)
}
