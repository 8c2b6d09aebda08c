package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// AccessLog selects the requests that are logged.
type AccessLog string

const (
	LogErrors AccessLog = "errors" // failures and slow requests, like the zero value
	LogAll    AccessLog = "all"
	LogNone   AccessLog = "off"
)

const (
	slowRequest = time.Second // a request that takes as long is logged like a failure
	maxMethod   = 16          // bytes of the method in the log; a client can send any text
	maxName     = 200         // bytes of the path, and of the names of the token and its store
	maxReason   = 4 << 10     // bytes of the reason in the log: enough for a stack trace
)

// ParseAccessLog reads the value of --access-log.
func ParseAccessLog(text string) (AccessLog, error) {
	switch log := AccessLog(text); log {
	case LogErrors, LogAll, LogNone:
		return log, nil
	}
	return "", fmt.Errorf("--access-log is %q: use errors, all or off", text)
}

// log writes the log record of a request. Of the request itself, it contains only the route, the method, the id, the
// client, the name and store of a valid token, and for a 404 the path. A client error is logged with its meaning in the
// catalogue, not with the message that the client gets. Only this record has the detail of a server error. An operator
// finds it by the request id in the response.
func (a *API) log(x *exchange, route string, f Failure, err error, took time.Duration) {
	abandoned := x.status == statusAbandoned // frequent: a page may search again at each key press
	if a.cfg.AccessLog == LogNone || a.cfg.AccessLog != LogAll && (err == nil || abandoned) && took < slowRequest {
		return
	}
	level := slog.LevelInfo
	failed := x.cause != nil && x.fault != "" && !x.injected() // the service itself, behind a fault
	if failed {
		err = x.cause
	}
	if failed || x.status >= 500 && x.fault == "" {
		level = slog.LevelError
	}
	attrs := []slog.Attr{
		slog.String("request_id", a.deps.Mask.Hide(x.id)), slog.String("route", route),
		slog.String("method", a.loggable(x.request.Method, maxMethod)),
		slog.Int("status", x.status), slog.Float64("ms", float64(took.Microseconds())/1000),
		slog.String("from", a.cfg.Proxies.name(x.request)),
	}
	if t := x.token; t != nil { // nil where the route needs no credential, or the credential is invalid
		attrs = append(attrs, slog.String("token", a.loggable(t.Name, maxName)),
			slog.String("store", a.loggable(t.Store, maxName)))
	}
	if x.status == http.StatusNotFound {
		attrs = append(attrs, slog.String("path", a.loggable(x.request.URL.Path, maxName)))
	}
	if f.Number != 0 {
		attrs = append(attrs, slog.Int("error", int(f.Number)))
	}
	if x.fault != "" {
		attrs = append(attrs, slog.String("fault", x.fault))
	}
	switch {
	case err == nil || x.injected():
	case abandoned && !failed:
		attrs = append(attrs, slog.String("reason", "The client closed its connection."))
	case f.Number != 0 && f.Status() < 500 && !failed:
		attrs = append(attrs, slog.String("reason", f.Meaning))
	default:
		attrs = append(attrs, slog.String("reason", a.loggable(err.Error(), maxReason)))
	}
	a.deps.Log.LogAttrs(x.ctx, level, "request", attrs...)
}

// loggable masks credentials in text and cuts it after most bytes.
func (a *API) loggable(text string, most int) string {
	text = a.deps.Mask.Hide(text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
