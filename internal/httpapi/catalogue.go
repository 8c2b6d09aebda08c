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
	Remedy  string
}

// Status returns the HTTP status of the response.
func (f Failure) Status() int { return int(f.Number) / 100 }

// Sandbox reports whether only a server with sandboxes has the failure.
func (f Failure) Sandbox() bool { return slices.Contains(ofSandboxes, f.Number) }

var ofSandboxes = []int32{40034, 40035, 40036, 40037, 40038, 40302, 42904, 42905, 50201, 50307, 50401}

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
	{plant.Empty, Failure{40001, "The body is empty.", "Send a JSON object."}},
	{plant.Syntax, Failure{40002, "The body is not JSON.", "Correct the JSON at the position in the message."}},
	{plant.InvalidUTF8, Failure{40003, "The body is not UTF-8.", "Encode it as UTF-8."}},
	{plant.ByteOrderMark, Failure{40004, "The body starts with a byte order mark.", "Send it without one."}},
	{plant.LoneSurrogate, Failure{40005, "A string has an unpaired surrogate.",
		"Escape both halves of the pair, or send the character itself."}},
	{plant.Trailing, Failure{40006, "The body continues after the JSON value.", "Send one value only."}},
	{plant.DuplicateName, Failure{40007, "An object has a member name twice, compared after unescaping.",
		"Send each name once."}},
	{plant.TooDeep, Failure{40008, "The body has more than 10,000 levels of nesting.", "Send fewer levels."}},
	{plant.ErrTaken, Failure{40009, "The id already belongs to a plant with a different name or tag.",
		"Choose another id. Repeating a create with the same name and tag returns 200."}},
	{plant.NotObject, Failure{40010, "The body is JSON, but not an object.", "Send an object."}},
	{plant.Missing, Failure{40011, "A required member is missing.", "Add it. Names are case-sensitive."}},
	{plant.Null, Failure{40012, "A member is null.", "Send a value, or omit tag."}},
	{plant.NotInteger, Failure{40013, "The id is not an integer.",
		"Send a JSON integer, not a string or a fraction."}},
	{plant.OutOfRange, Failure{40014, "The id does not fit into a 64-bit signed integer.",
		"Choose an integer from -2^63 to 2^63 - 1."}},
	{plant.NotString, Failure{40015, "The name or tag is not a string.", "Send a JSON string."}},
	{plant.ZeroCharacter, Failure{40016, "The name or tag contains U+0000.", "Remove the character."}},
	{errTooLarge, Failure{40017, "The body is larger than the service accepts.",
		"Send a smaller one, or ask the operator to raise --max-body."}},
	{errNoType, Failure{40018, "The request has no Content-Type.", "Send Content-Type: application/json."}},
	{errWrongType, Failure{40019, "The Content-Type is not application/json, with or without charset=utf-8.",
		"Send Content-Type: application/json."}},
	{errRepeatedType, Failure{40020, "The request has several Content-Type headers.", "Send one."}},
	{errEncoding, Failure{40021, "The body has a Content-Encoding.", "Send the body without compression."}},
	{errBroken, Failure{40022, "The body ended early, or its framing is invalid.",
		"Send as many bytes as Content-Length announces, or well-formed chunks."}},
	{errSlow, Failure{40023, "The body did not arrive in time.", "Send it faster."}},
	{errMalformed, Failure{40024, "The request is not valid HTTP/1.1.", "Use an HTTP library."}},
	{errBadID, Failure{40025, "The id in the path is not a 64-bit signed integer.",
		"Write it in decimal digits, without a plus sign or leading zeros."}},
	{errBadLimit, Failure{40026, "The limit is not an integer of at least 1.",
		"Send 1 or more in decimal digits. A limit above 1000 acts as 1000."}},
	{errBadAfter, Failure{40027, "The parameter after is not a 64-bit signed integer.",
		"Follow the Link header of the previous page."}},
	{errBadPrecondition, Failure{40028, "The If-Match or If-None-Match header is not a list of entity tags.",
		"Send the ETag of a response unchanged."}},
	{errBadQuery, Failure{40029,
		"The query string is not well-formed, has a parameter twice, or contains invalid UTF-8 or U+0000.",
		"Send each parameter once, as percent-encoded UTF-8 without U+0000."}},
	{errExpectation, Failure{40030, "The Expect header is not 100-continue.", "Omit it."}},
	{errEmptyPrecondition, Failure{40031, "The If-Match or If-None-Match header of a replace or remove is empty.",
		"Send the ETag of the plant, or omit the header to change the plant whatever its content is."}},
	{plant.OtherID, Failure{40032, "The id in the body differs from the id in the path.",
		"Omit it, or send the id of the path."}},
	{errParameter, Failure{40033, "The query parameter is unknown.",
		"Omit it. A list of plants has limit, after, tag and q; other operations have none."}},
	{ErrSandboxBody, Failure{40034, "The body of a new sandbox is invalid.",
		"Send no body, or an object with seed (garden or empty), ttl (60 to 86400), or both."}},
	{ErrSandboxFull, Failure{40035, "The sandbox is full: it has 1,000 plants, or 1 MiB of names and tags.",
		"Remove plants, reset the sandbox, or create another."}},
	{ErrPreference, Failure{40036, "The Prefer header asks a sandbox for an invalid fault.",
		"Correct the value that the message names."}},
	{ErrRules, Failure{40037, "The rules for faults in the sandbox are invalid.",
		"Correct the rule that the message names."}},
	{ErrJournalQuery, Failure{40038,
		"The limit or before of a list of requests in a sandbox is not an integer of at least 1.",
		"Send 1 or more in decimal digits. A limit above 200 acts as 200."}},

	{token.ErrMissing, Failure{40101, "The token is missing.", "Send Authorization: Bearer <ACCESS_TOKEN>."}},
	{token.ErrMalformed, Failure{40102, "The Authorization header is repeated or has no bearer token.",
		"Send one header of the form Authorization: Bearer <ACCESS_TOKEN>."}},
	{token.ErrMistyped, Failure{40103, "The token has the wrong form or checksum.",
		"Copy the whole token."}},
	{token.ErrInvalid, Failure{40104, "The token is unknown.", "Use a token that was issued in this database."}},
	{token.ErrExpired, Failure{40105, "The token has expired.", "Ask the operator for a new token."}},
	{token.ErrRevoked, Failure{40106, "The token was revoked.", "Ask the operator for a new token."}},
	{token.ErrRejected, Failure{40107, "The token of the identity provider is invalid; the message says why.",
		"Request a token for this service from the identity provider."}},
	{token.ErrScope, Failure{40301, "The token lacks the scope that the operation requires.",
		"Ask the operator for a token with that scope."}},
	{errNotSandbox, Failure{40302, "The operation needs the token of a sandbox.",
		"Create a sandbox with POST /sandboxes and use its token."}},

	{plant.ErrNotFound, Failure{40401, "No plant in the store has this id.", "Create it first."}},
	{errNoRoute, Failure{40402, "The path does not exist.", "See /openapi.json for the paths of the service."}},
	{errMethod, Failure{40501, "The path does not support the method.", "Use a method listed in the Allow header."}},
	{plant.ErrChanged, Failure{41201, "The plant does not match If-Match.", "Read the plant again before you change it."}},
	{errMatches, Failure{41202, "The plant matches If-None-Match, or changed while it was compared.",
		"Omit If-None-Match to change the plant. To create one, use POST."}},
	{errRate, Failure{42901, "The token exceeded its rate limit; the request was not executed.",
		"Retry after the time in Retry-After; RateLimit-Policy has the limit."}},
	{token.ErrFailures, Failure{42902,
		"Too many tokens from the address were invalid, and this one is not cached; the request was not executed.",
		"Retry after the time in Retry-After."}},
	{token.ErrLookups, Failure{42903,
		"Too many tokens are being looked up, and this one is not cached; the request was not executed.",
		"Retry after the time in Retry-After."}},
	{ErrSandboxRate, Failure{42904, "The address has created too many sandboxes.",
		"Retry after the time in Retry-After, or use one sandbox for longer."}},
	{errDelays, Failure{42905,
		"Too many requests are delayed in the sandbox, or in all sandboxes; the request was not executed.",
		"Retry after the time in Retry-After."}},
	{errHeaderTooLarge, Failure{43101, "The request line and headers are too large.", "Send fewer or shorter headers."}},

	{errInternal, Failure{50001, "The service failed.", "Report the X-Request-Id to the operator."}},
	{errCoding, Failure{50101, "The Transfer-Encoding is not supported.", "Use chunked or Content-Length."}},
	{errGateway, Failure{50201, "A gateway received no valid response. Only a fault in a sandbox causes it.",
		"Repeat a create. Before repeating a replace or remove, read the plant."}},
	{storage.ErrUnknown, Failure{50302, "Whether the change was stored is unknown.",
		"Repeat a create. Before repeating a replace or remove, read the plant."}},
	{storage.ErrBusy, Failure{50301, "The service is overloaded. Nothing was stored.",
		"Retry after the time in Retry-After."}},
	{storage.ErrFull, Failure{50304, "The disk of the database is full. Nothing was stored.",
		"Retry later; the operator must free disk space."}},
	{storage.ErrUnavailable, Failure{50303, "The database is unavailable. Nothing was stored.",
		"Retry later; the operator sees the reason on /readyz."}},
	{storage.ErrStopping, Failure{50305, "The service is stopping. Nothing was stored.",
		"Retry: another process may respond."}},
	{token.ErrKeys, Failure{50306,
		"The key that has signed the token is not available from the identity provider. Nothing was stored.",
		"Retry after the time in Retry-After; the operator sees the reason in the log."}},
	{ErrNoSandbox, Failure{50307, "There are too many sandboxes, or too little space for them. Nothing was stored.",
		"Retry after the time in Retry-After, or remove a sandbox that you no longer need."}},
	{errGatewayTime, Failure{50401, "A gateway received no response in time. Only a fault in a sandbox causes it.",
		"Repeat a create. Before repeating a replace or remove, read the plant."}},
	{errProtocol, Failure{50501, "The HTTP version is not supported.", "Use HTTP/1.1."}},
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
