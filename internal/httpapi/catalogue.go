package httpapi

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// Failure is an entry of the error catalogue. Its number is the HTTP status × 100 + n and never changes its meaning.
type Failure struct {
	Number  int32
	Meaning string
}

// Status returns the HTTP status of the response.
func (f Failure) Status() int { return int(f.Number) / 100 }

// The errors of the HTTP API itself. Their texts are messages to clients.
var (
	errTooLarge          = errors.New("the body is too large")
	errNoType            = errors.New("Content-Type is required and must be application/json")
	errWrongType         = errors.New("Content-Type must be application/json")
	errRepeatedType      = errors.New("Content-Type appears more than once; send it once")
	errEncoding          = errors.New("Content-Encoding must be absent or identity")
	errBroken            = errors.New("the body ended early or its framing is invalid")
	errSlow              = errors.New("the body did not arrive in time")
	errMalformed         = errors.New("the request is not valid HTTP/1.1")
	errNoRoute           = errors.New("the path does not exist")
	errMethod            = errors.New("the path does not support this method")
	errHeaderTooLarge    = errors.New("the request line and headers are too large; send fewer or shorter headers")
	errCoding            = errors.New("Transfer-Encoding must be absent or chunked")
	errProtocol          = errors.New("the HTTP version is not supported; use HTTP/1.1")
	errInternal          = errors.New("the service failed; report the X-Request-Id of this response to its operator")
	errBadID             = errors.New("id in the path is not an integer")
	errBadLimit          = errors.New("limit must be an integer of at least 1")
	errBadAfter          = errors.New("after is not an integer")
	errExpectation       = errors.New("the Expect header must be absent or 100-continue")
	errBadQuery          = errors.New("the query string is not well-formed")
	errParameter         = errors.New("the query parameter is unknown")
	errBadPrecondition   = errors.New("If-Match and If-None-Match must be * or a list of entity tags")
	errEmptyPrecondition = errors.New("If-Match and If-None-Match must not be empty")
	errMatches           = errors.New("the plant matches If-None-Match")
	errRate              = errors.New("the token exceeded its rate limit")
)

// failures maps every error of a handler to its entry of the catalogue. The first match counts; an error without a
// match is errInternal, and its text is not sent to the client.
var failures = []struct {
	err error
	Failure
}{
	{plant.Empty, Failure{40001, "The body is empty."}},
	{plant.Syntax, Failure{40002, "The body is not JSON."}},
	{plant.InvalidUTF8, Failure{40003, "The body is not UTF-8."}},
	{plant.ByteOrderMark, Failure{40004, "The body starts with a byte order mark."}},
	{plant.LoneSurrogate, Failure{40005, "A string has a lone surrogate."}},
	{plant.Trailing, Failure{40006, "The body continues after the JSON value."}},
	{plant.DuplicateName, Failure{40007, "An object has a member name twice, compared after unescaping."}},
	{plant.TooDeep, Failure{40008, "The body has more than 10,000 levels of nesting."}},
	{plant.ErrTaken, Failure{40009, "The id already belongs to a plant with a different name or tag."}},
	{plant.NotObject, Failure{40010, "The body is JSON, but not an object."}},
	{plant.Missing, Failure{40011, "A required member is missing."}},
	{plant.Null, Failure{40012, "A member is null."}},
	{plant.NotInteger, Failure{40013, "The id is not an integer."}},
	{plant.OutOfRange, Failure{40014, "The id does not fit into a 64-bit signed integer."}},
	{plant.NotString, Failure{40015, "The name or tag is not a string."}},
	{plant.ZeroCharacter, Failure{40016, "The name or tag contains U+0000."}},
	{errTooLarge, Failure{40017, "The body is larger than the service accepts."}},
	{errNoType, Failure{40018, "The request has no Content-Type."}},
	{errWrongType, Failure{40019, "The Content-Type is not application/json, with or without charset=utf-8."}},
	{errRepeatedType, Failure{40020, "The request has several Content-Type headers."}},
	{errEncoding, Failure{40021, "The body has a Content-Encoding."}},
	{errBroken, Failure{40022, "The body ended early, or its framing is invalid."}},
	{errSlow, Failure{40023, "The body did not arrive in time."}},
	{errMalformed, Failure{40024, "The request is not valid HTTP/1.1."}},
	{errBadID, Failure{40025, "The id in the path is not a 64-bit signed integer."}},
	{errBadLimit, Failure{40026, "The limit is not an integer of at least 1."}},
	{errBadAfter, Failure{40027, "The parameter after is not a 64-bit signed integer."}},
	{errBadPrecondition, Failure{40028, "The If-Match or If-None-Match header is not a list of entity tags."}},
	{errBadQuery, Failure{40029,
		"The query string is not well-formed, has a parameter twice, or contains invalid UTF-8 or U+0000."}},
	{errExpectation, Failure{40030, "The Expect header is not 100-continue."}},
	{errEmptyPrecondition, Failure{40031, "The If-Match or If-None-Match header of a replace or delete is empty."}},
	{plant.OtherID, Failure{40032, "The id in the body differs from the id in the path."}},
	{errParameter, Failure{40033, "The query parameter is unknown."}},
	{ErrSandboxBody, Failure{40034, "The body of a new sandbox is invalid."}},
	{ErrSandboxFull, Failure{40035, "The sandbox is full: it has 1,000 plants, or 1 MiB of names and tags."}},
	{ErrPreference, Failure{40036, "The Prefer header asks a sandbox for an invalid fault."}},
	{ErrRules, Failure{40037, "The rules for faults in the sandbox are invalid."}},
	{ErrJournalQuery, Failure{40038,
		"The limit or before of a list of requests in a sandbox is not an integer of at least 1."}},
	{ErrWebhookBody, Failure{40039, "The body of the webhook request is invalid."}},
	{ErrWebhookQuery, Failure{40040, "A query parameter of the webhook request is invalid."}},
	{ErrTooManyEndpoints, Failure{40041, "The store or the service has too many webhook endpoints."}},
	{ErrTarget, Failure{40042, "The address of the webhook URL is not allowed."}},

	{token.ErrMissing, Failure{40101, "The token is missing."}},
	{token.ErrMalformed, Failure{40102, "The Authorization header is repeated or has no bearer token."}},
	{token.ErrMistyped, Failure{40103, "The token has the wrong form or checksum."}},
	{token.ErrInvalid, Failure{40104, "The token is unknown."}},
	{token.ErrExpired, Failure{40105, "The token has expired."}},
	{token.ErrRevoked, Failure{40106, "The token was revoked."}},
	{token.ErrRejected, Failure{40107, "The token of the identity provider is invalid; the message says why."}},
	{token.ErrScope, Failure{40301, "The token lacks the scope that the operation requires."}},
	{errNotSandbox, Failure{40302, "The operation needs the token of a sandbox."}},

	{plant.ErrNotFound, Failure{40401, "No plant in the store has this id."}},
	{errNoRoute, Failure{40402, "The path does not exist."}},
	{storage.ErrNoWebhook, Failure{40403, "No webhook endpoint or delivery of the store has this id."}},
	{errMethod, Failure{40501, "The path does not support the method."}},
	{ErrReplaying, Failure{40901, "An earlier replay of the webhook endpoint has not ended."}},
	{plant.ErrChanged, Failure{41201, "The plant does not match If-Match."}},
	{errMatches, Failure{41202, "The plant matches If-None-Match, or changed while it was compared."}},
	{errRate, Failure{42901, "The token exceeded its rate limit; the request was not executed."}},
	{token.ErrFailures, Failure{42902,
		"The address has sent too many invalid tokens; the request was not executed."}},
	{token.ErrLookups, Failure{42903,
		"Too many tokens are being checked; the request was not executed."}},
	{ErrSandboxRate, Failure{42904, "The address has created too many sandboxes."}},
	{ErrWaiting, Failure{42905, "Too many requests are waiting; the request was not executed."}},
	{errHeaderTooLarge, Failure{43101, "The request line and headers are too large."}},

	{errInternal, Failure{50001, "The service failed."}},
	{errCoding, Failure{50101, "The Transfer-Encoding is not supported."}},
	{errNoWebhooks, Failure{50102, "Citus has no webhooks."}},
	{errGateway, Failure{50201, "A gateway received no valid response. Only a fault in a sandbox causes it."}},
	{storage.ErrUnknown, Failure{50302, "It is unknown whether the change was stored."}},
	{storage.ErrBusy, Failure{50301, "The service is overloaded. Nothing was stored."}},
	{storage.ErrFull, Failure{50304, "The disk of the database is full. Nothing was stored."}},
	{storage.ErrUnavailable, Failure{50303, "The database is unavailable. Nothing was stored."}},
	{storage.ErrStopping, Failure{50305, "The service is stopping. Nothing was stored."}},
	{token.ErrKeys, Failure{50306,
		"The key that signed the token is not available from the identity provider. Nothing was stored."}},
	{ErrNoSandbox, Failure{50307, "There are too many sandboxes, or too little space for them. Nothing was stored."}},
	{errGatewayTime, Failure{50401, "A gateway received no response in time. Only a fault in a sandbox causes it."}},
	{errProtocol, Failure{50501, "The HTTP version is not supported."}},
}

// ErrorOf returns the error of a failure for a code, a number or a status, which stands for its lowest number. It
// returns nil if there is none.
func ErrorOf(code int) (err error) {
	lowest := int32(math.MaxInt32)
	for _, f := range failures {
		if f.Number < lowest && (int(f.Number) == code || f.Status() == code) {
			lowest, err = f.Number, f.err
		}
	}
	if lowest/100 == http.StatusTooManyRequests {
		return &rate.Exceeded{Why: err, Wait: time.Second}
	}
	return err
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
