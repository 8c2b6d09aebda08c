package httpapi

import (
	"fmt"
	"log/slog"
	"time"
)

// AccessLog selects the requests that are logged.
type AccessLog uint8

const (
	LogErrors AccessLog = iota // failures and slow requests
	LogAll
	LogNone
)

// slowRequest is the duration from which a request is logged as failures are.
const slowRequest = time.Second

// ParseAccessLog reads the value of --access-log.
func ParseAccessLog(text string) (AccessLog, error) {
	switch text {
	case "errors":
		return LogErrors, nil
	case "all":
		return LogAll, nil
	case "off":
		return LogNone, nil
	}
	return 0, fmt.Errorf("--access-log is %q: use errors, all or off", text)
}

// log writes the log record of a request. The detail of an internal error is only here: the request id in the
// response leads an operator to it.
func (a *API) log(x *exchange, number int32, err error) {
	took := time.Since(x.start)
	if a.cfg.AccessLog == LogNone || a.cfg.AccessLog == LogErrors && err == nil && took < slowRequest {
		return
	}
	pattern := x.request.Pattern
	if pattern == "" {
		pattern = "unmatched"
	}
	level := slog.LevelInfo
	if x.status >= 500 {
		level = slog.LevelError
	}
	attrs := []slog.Attr{
		slog.String("id", x.id), slog.String("route", pattern), slog.String("method", x.request.Method),
		slog.Int("status", x.status), slog.Float64("ms", float64(took.Microseconds())/1000),
		slog.String("from", a.cfg.Proxies.name(x.request)),
	}
	if number != 0 {
		attrs = append(attrs, slog.Int("error", int(number)))
	}
	if err != nil {
		attrs = append(attrs, slog.String("reason", masked(err.Error())))
	}
	a.deps.Log.LogAttrs(x.context(), level, "request", attrs...)
}
