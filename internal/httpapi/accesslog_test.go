package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/token"
)

func TestParseAccessLog(t *testing.T) {
	for text, want := range map[string]AccessLog{"errors": LogErrors, "all": LogAll, "off": LogNone} {
		if got, err := ParseAccessLog(text); err != nil || got != want {
			t.Errorf("ParseAccessLog(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "ALL", "none"} {
		if _, err := ParseAccessLog(text); err == nil || !strings.HasPrefix(err.Error(), "--access-log is ") {
			t.Errorf("ParseAccessLog(%q) = %v", text, err)
		}
	}
}

// slow is a storage whose reads take time.
type slow struct {
	*fakeStorage
	takes time.Duration
}

func (s slow) Get(ctx context.Context, store string, id int64) (plant.Plant, error) {
	time.Sleep(s.takes)
	return s.fakeStorage.Get(ctx, store, id)
}

// named authenticates every client.
type named struct{}

func (named) Authenticate(context.Context, []string, token.Source) (*token.Token, error) {
	return &token.Token{Name: "ci\u202e plant_0123456789abcdefghij", Store: "main", Scopes: token.AllScopes}, nil
}

func TestAccessLog(t *testing.T) {
	for _, test := range []struct {
		name   string
		log    AccessLog
		takes  time.Duration
		target string
		status float64 // 0 for no record
		number any
		route  string
	}{
		{"a success", LogErrors, 0, "/plants/7", 0, nil, ""},
		{"nearly slow", LogErrors, slowRequest - 1, "/plants/7", 0, nil, ""},
		{"slow", LogErrors, slowRequest, "/plants/7", 200, nil, "/plants/{id}"},
		{"a success with all", LogAll, 0, "/plants/7", 200, nil, "/plants/{id}"},
		{"a page with all", LogAll, 0, "/healthz", 0, nil, ""},
		{"a failure", LogErrors, 0, "/plants/8", 404, 40401.0, "/plants/{id}"},
		{"an unknown path", LogErrors, 0, "/x", 404, 40402.0, "unmatched"},
		{"a wrong request", LogErrors, 0, "/plants/7?x", 400, 40033.0, "/plants/{id}"},
		{"a path that is not clean", LogErrors, 0, "//x", 404, 40402.0, "unmatched"},
		{"a failure without a log", LogNone, slowRequest, "/plants/8", 0, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // only the storage takes time
				page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
				a, log := newAPI(Config{AccessLog: test.log}, Dependencies{
					Reader: slow{ferns(7), test.takes}, Auth: named{}, Pages: map[string]http.Handler{"GET /healthz": page},
				})
				w := send(a, "GET", test.target, nil)
				if test.status == 0 {
					if log.Len() > 0 {
						t.Errorf("logged %s", log)
					}
					return
				}
				var record map[string]any
				if err := json.Unmarshal(log.Bytes(), &record); err != nil {
					t.Fatalf("%v in %s", err, log)
				}
				var client, store any = "ci\u202e plant_…", "main"
				if test.route == unmatched { // needs no token
					client, store = nil, nil
				}
				for name, want := range map[string]any{
					"request_id": w.Header().Get("X-Request-Id"), "route": test.route, "method": "GET",
					"status": test.status, "error": test.number,
					"msg": "request", "level": "INFO", "from": "192.0.2.1:1234", "ms": float64(test.takes.Milliseconds()),
					"token": client, "store": store,
				} {
					if record[name] != want {
						t.Errorf("%s = %v, want %v", name, record[name], want)
					}
				}
				if path, has := record["path"]; has != (test.status == 404) || has && path != test.target {
					t.Errorf("path %v of %s", path, test.target)
				}
				if _, has := record["reason"]; has != (test.number != nil) {
					t.Errorf("reason %v of status %d", record["reason"], w.Code)
				}
			})
		})
	}
}

// The record of a client error has the meaning of the error in place of its message. The method, the path, and the
// detail of a server error, are bounded and contain no credential.
func TestLoggedReason(t *testing.T) {
	const fixed, noMethod = "a-fixed-token-of-a-test", "The path does not support the method."
	long := strings.Repeat("é", 2048) // as long as a reason may be
	for _, test := range []struct {
		method, target string
		fails          error
		wantMethod     string
		reason, path   string
	}{
		{"GET", "/" + fixed, nil, "GET", "The path does not exist.", "/…"},
		{"GET", "/%61-fixed%2dtoken-of-a-test", nil, "GET", "The path does not exist.", "/…"},
		{"GET", "/" + strings.Repeat("é", 100), nil, "GET", "The path does not exist.",
			"/" + strings.Repeat("é", 99) + "…"},
		{"GET", "/plants/secret", nil, "GET", "The id in the path is not a 64-bit signed integer.", ""},
		{"GET", "/plants/8", nil, "GET", "No plant in the store has this id.", "/plants/8"},
		{"GET", "/plants/7", errors.New("detail"), "GET", "plant 7: detail", ""},
		{"GET", "/plants/7", errors.New("row " + fixed), "GET", "plant 7: row …", ""},
		{"GET", "/plants/7", errors.New(long[9:]), "GET", "plant 7: " + strings.ToValidUTF8(long[9:], "\ufffd"), ""},
		{"GET", "/plants/7", errors.New(long[8:]), "GET", "plant 7: " + long[8:len(long)-2] + "…", ""},
		{strings.Repeat("M", 16), "/plants", nil, strings.Repeat("M", 16), noMethod, ""},
		{strings.Repeat("M", 17), "/plants", nil, strings.Repeat("M", 16) + "…", noMethod, ""},
		{"MMMMMMMMMMMM-" + fixed, "/plants", nil, "MMMMMMMMMMMM-…", noMethod, ""},
	} {
		s := ferns(7)
		s.fail["Get 1"] = test.fails
		a, log := newAPI(Config{}, Dependencies{Reader: s, Mask: token.NewMask(fixed)})
		send(a, test.method, test.target, nil)
		var record struct{ Method, Reason, Path string }
		if err := json.Unmarshal(log.Bytes(), &record); err != nil {
			t.Fatalf("%v in %s", err, log)
		}
		if record.Method != test.wantMethod || record.Reason != test.reason || record.Path != test.path {
			t.Errorf("%s %s is logged as %+v\nwant %s, %s, %s", test.method, test.target, record,
				test.wantMethod, test.reason, test.path)
		}
	}
}

// A client that leaves is not a failure of the service, and not one of the body that it sent: no error is counted.
func TestAbandoned(t *testing.T) {
	for log, want := range map[AccessLog]string{
		LogErrors: "", LogAll: `"status":499,"ms":0,"from":"192.0.2.1:1234","reason":"The client closed its connection."`,
	} {
		synctest.Test(t, func(t *testing.T) {
			var seen []Request
			a, records := newAPI(Config{AccessLog: log}, Dependencies{Observe: func(r Request) { seen = append(seen, r) }})
			leave := a.adapt(Route{handle: func(*exchange) error { return fmt.Errorf("search: %w", context.Canceled) }})
			wantAbandoned(t, leave, "GET", "/plants?q=x")
			if got := records.String(); !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("log %v: %q, want %q", log, got, want)
			}
			if len(seen) != 1 || seen[0].Status != statusAbandoned || seen[0].Number != 0 {
				t.Errorf("observed %+v", seen)
			}
		})
	}
}
