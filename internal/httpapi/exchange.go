package httpapi

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"plantstore/internal/token"
)

// AccessLog says which requests leave a record.
type AccessLog uint8

const (
	LogErrors AccessLog = iota // failures and slow requests
	LogAll
	LogNone
)

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
	return 0, fmt.Errorf("the access log is %q: expected errors, all or off", text)
}

// exchange is one request and its answer: what the adapter needs to know when the handler is done,
// and buffers that the next request can use again.
type exchange struct {
	http.ResponseWriter
	request *http.Request
	api     *API
	id      string
	start   time.Time
	status  int // zero until the answer has begun
	buf     []byte
	token   *token.Token // nil where none is asked for
	held    int64        // of what the API may hold at once: see hold
}

var exchanges = sync.Pool{New: func() any { return &exchange{buf: make([]byte, 0, 1024)} }}

func (x *exchange) WriteHeader(status int) {
	if x.status != 0 {
		return
	}
	x.status = status
	if x.api.stopping() {
		x.Header().Set("Connection", "close")
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(b []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	return x.ResponseWriter.Write(b)
}

// small is what every request may have without being counted.
const small = 4 << 10

// memory counts the bytes of large bodies and pages that exchanges have in memory, all together and of each token.
type memory struct {
	most int64 // 0 for any number
	mu   sync.Mutex
	held int64
	by   map[token.Hash]int64 // of held; only of tokens that have some
}

// hold counts n bytes that an exchange has in memory until it is over. It fails where all exchanges
// together would have too many, or those of its token more than is left: a body that does not end and a page that
// nobody reads stay for up to a minute, and may not keep others out meanwhile. So a token has half at most, also
// where nobody else is there yet. One exchange alone may have all that is left.
func (x *exchange) hold(n int) error {
	m, more := &x.api.memory, int64(n)-x.held
	if n <= small || more <= 0 || m.most == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all, mine := m.held+more, m.by[x.token.Hash]+more
	switch left := m.most - all; {
	case left < 0:
		return busy("large bodies and pages take all the memory that they may")
	case mine > left && mine > int64(n):
		return busy("large bodies and pages of the token take as much memory as is left for others")
	}
	m.held, m.by[x.token.Hash] = all, mine
	x.held += more
	return nil
}

func (x *exchange) release() {
	if x.held == 0 {
		return
	}
	m := &x.api.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held -= x.held
	if m.by[x.token.Hash] -= x.held; m.by[x.token.Hash] == 0 {
		delete(m.by, x.token.Hash)
	}
	x.held = 0
}

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// adapt is what happens around every handler: request id, credential, errors, panics, the log.
func (a *API) adapt(h handler, needs token.Scope) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchanges.Get().(*exchange)
		x.ResponseWriter, x.request, x.api, x.start, x.status = w, r, a, time.Now(), 0
		x.id = requestID(r.Header["X-Request-Id"])
		w.Header()["X-Request-Id"] = []string{x.id}

		err := a.answer(x, r, h, needs)
		var number int32
		if err != nil {
			if x.status != 0 { // half an answer is out: only the end of the connection tells the truth
				a.record(r, x, 0, err)
				x.release()
				panic(http.ErrAbortHandler)
			}
			number = writeFailure(x, err)
		}
		a.record(r, x, number, err)

		x.release()
		x.ResponseWriter, x.request, x.token = nil, nil, nil
		if cap(x.buf) <= 64<<10 {
			exchanges.Put(x)
		}
	})
}

func (a *API) answer(x *exchange, r *http.Request, h handler, needs token.Scope) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	var t *token.Token
	if needs != 0 {
		if t, err = a.auth.Authenticate(r.Context(), r.Header["Authorization"], x); err != nil {
			return err
		}
		x.token = t
		if err := a.limit(x, t); err != nil {
			return err
		}
		if a.admit != nil && a.admit(r.Context(), t.Hash) {
			x.Header().Set("Connection", "close")
		}
		if t.Scopes&needs == 0 {
			x.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="plantstore", error="insufficient_scope", scope=%q`, needs))
			return fmt.Errorf("%w: expected %s, found %s", token.ErrScope, needs, t.Scopes)
		}
	}
	return h(x, r, t)
}

// record writes the request's line in the log. The detail of a fault of ours is there and only
// there; the request id leads from the answer to it.
func (a *API) record(r *http.Request, x *exchange, number int32, err error) {
	took := time.Since(x.start)
	if a.accessLog == LogNone || (a.accessLog == LogErrors && x.status < 400 && err == nil && took < a.slow) {
		return
	}
	pattern := r.Pattern
	if pattern == "" {
		pattern = "unmatched"
	}
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("id", x.id), slog.String("route", pattern), slog.String("method", r.Method),
		slog.Int("status", x.status), slog.Float64("ms", float64(took.Microseconds())/1000), slog.String("from", a.proxies.name(r)),
	}
	if number != 0 {
		attrs = append(attrs, slog.Int("error", int(number)))
	}
	if err != nil {
		attrs = append(attrs, slog.String("reason", masked(err.Error())))
	}
	if x.status >= 500 {
		level = slog.LevelError
	}
	a.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// requestID is the client's own id where it is one that can stand in a log and a header as it is,
// and otherwise a new one.
func requestID(sent []string) string {
	if len(sent) == 1 && len(sent[0]) > 0 && len(sent[0]) <= 64 && strings.IndexFunc(sent[0], func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_.:/+=", r))
	}) < 0 && !secret.MatchString(sent[0]) {
		return sent[0]
	}
	return NewRequestID()
}

// NewRequestID makes up the id of an exchange.
func NewRequestID() string { return strconv.FormatUint(rand.Uint64()|1<<63, 32) }
