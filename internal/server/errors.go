package server

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"plantstore/internal/httpapi"
)

type logFunc func(message string, attrs ...any)

// Write logs an error of net/http. Its text may contain an address, so it is an attribute. The message is always the
// same, so that the records are grouped.
func (log logFunc) Write(text []byte) (int, error) {
	log("error in the HTTP server", "reason", strings.TrimSpace(string(text)))
	return len(text), nil
}

// errorResponse returns the response that replaces one that net/http sends by itself, such as 400 for a request that it
// can't parse, because every response that is not a success is an Error. It returns nil for a status that net/http does
// not send.
func errorResponse(status int, client net.Addr, log logFunc) (httpapi.Failure, []byte) {
	f, body, ok := httpapi.LibraryFailure(status)
	if !ok {
		return f, nil
	}
	id := logFailure(f, client.String(), log)
	return f, fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"X-Request-Id: %s\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n%s",
		f.Status(), http.StatusText(f.Status()), len(body), id, body)
}

// logFailure logs a request that does not reach the API or a path of the ops port, and returns the id that it gets.
func logFailure(f httpapi.Failure, client string, log logFunc) (id string) {
	id = httpapi.NewRequestID()
	log("request", "request_id", id, "route", "unmatched", "status", f.Status(), "error", f.Number, "from", client,
		"reason", f.Meaning)
	return id
}
