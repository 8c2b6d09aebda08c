package server

import (
	"fmt"
	"net"
	"net/http"

	"plantstore/internal/httpapi"
)

type logFunc func(message string, attrs ...any)

// errorResponse is what a client gets in place of a response with this status that net/http sends by itself, such as
// 400 for a request that it can't parse: every response that is not a success is an Error. It is nil for a status that
// net/http does not send.
func errorResponse(status int, client net.Addr, log logFunc) []byte {
	f, body, ok := httpapi.LibraryFailure(status)
	if !ok {
		return nil
	}
	id := logFailure(f, client.String(), log)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"X-Request-Id: %s\r\nConnection: close\r\n\r\n%s", f.Status(), http.StatusText(f.Status()), len(body), id, body)
}

// healthOnly passes requests for /livez and /readyz on to health. Others get an Error, where http.ServeMux would send
// a redirect, text, or no body.
func healthOnly(health http.Handler, log logFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, status := w.Header(), http.StatusNotFound
		if r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
			if r.Method == http.MethodGet || r.Method == http.MethodHead {
				health.ServeHTTP(w, r)
				return
			}
			h.Set("Allow", "GET, HEAD")
			status = http.StatusMethodNotAllowed
		}
		f, body, _ := httpapi.LibraryFailure(status)
		h.Set("Content-Type", "application/json")
		h.Set("X-Request-Id", logFailure(f, r.RemoteAddr, log))
		w.WriteHeader(f.Status())
		w.Write(body)
	})
}

// logFailure logs a request that does not reach the API or health, and returns the id that it gets.
func logFailure(f httpapi.Failure, client string, log logFunc) (id string) {
	id = httpapi.NewRequestID()
	log("request", "id", id, "route", "unmatched", "status", f.Status(), "error", f.Number, "from", client,
		"reason", f.Meaning)
	return id
}
