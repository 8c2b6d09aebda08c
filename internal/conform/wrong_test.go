package conform_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/internal/conform"
	"plantstore/internal/server"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/webhook"
)

// wrongServer is a right server with one defect.
type wrongServer struct {
	defect string
	change func(x *exchange)
	fails  string // the cases that fail; no other does
}

func none(x *exchange) { x.send() }

// The honest server and the product pass all cases of the levels that they claim. Each defect fails exactly the cases
// about it. A webhook that is never sent, or not signed, takes 15 seconds.
func TestWrongServers(t *testing.T) {
	var long sync.WaitGroup
	long.Go(func() {
		t.Run("webhook never sent", func(t *testing.T) {
			dropped := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			wrongServer{"", none, "sample-08 store-42"}.checkProduct(t, false, dropped)
		})
	})
	t.Run("honest server", testDefects)
	t.Run("product", testDefectsOfProduct)
	long.Wait()
}

func testDefects(t *testing.T) {
	for _, w := range []wrongServer{
		{"none", none, ""},
		{"returns the id", replaceResponse("POST /plants", `^{`, `{"id":1,`), "spec-02"},
		{"no tag becomes an empty one", replaceResponse("POST /plants", `"Fern"}`, `"Fern","tag":""}`), "spec-03"},
		{"empty tag becomes none", replaceResponse("POST /plants", `,"tag":""`, ""), "spec-04"},
		{"loses the tag", replaceResponse("POST /plants", `,"tag":".*"}`, `}`), "spec-01 04 06 07 08 10"},
		{"refuses an empty name", replaceBody(`"name":""`, `"name":7`), "spec-05"},
		{"trims names", replaceResponse("POST /plants", `":" Fern\\n"`, `":"Fern"`), "spec-06"},
		{"normalises Unicode", replaceResponse("POST /plants", "e\u0301", "é"), "spec-07"},
		{"escapes HTML", replaceResponse("POST /plants", `\\u0026`, `&amp;`), "spec-08"},
		{"names have 255 characters", replaceResponse("POST /plants", `(x{255})x*`, `$1`), "spec-09"},
		{"wants a fixed order of members", replaceBody(`^ .*`, ``), "spec-10"},
		{"refuses negative ids", replaceBody(`"id":-`, `"id":x`), "spec-11 14"},
		{"ids are at most 2^53", replaceBody(`-?\d{17,}`, "x"), "spec-12 13 14"},
		{"ids are double-precision numbers", func(x *exchange) {
			x.body = regexp.MustCompile(`-?\d{15,}`).ReplaceAllStringFunc(x.body, rounded)
			x.send()
		}, "spec-12"},
		{"ids wrap around", replaceBody(`:(9).*808,|:-(9).*809,`, ":$1$2${2}7,"), "spec-15 16"},
		{"ids may be strings", replaceBody(`"id":"(\d+)"`, `"id":$1`), "spec-17"},
		{"float ids", replaceBody(`("id":\d+)\.5`, "$1"), "spec-18"},
		{"null is zero", replaceBody(`"id":null`, `"id":0`), "spec-19"},
		{"null is an empty name", replaceBody(`"name":null`, `"name":""`), "spec-22"},
		{"null is no tag", replaceBody(`,"tag":null`, ""), "spec-24"},
		{"makes up an id", replaceBody(`^{"name"`, `{"id":7,"name"`), "spec-20"},
		{"makes up a name", replaceBody(`^({"id":\d+),"tag"`, `$1,"name":"","tag"`), "spec-21"},
		{"makes up a plant", replaceBody(`^$`, `{"id":7,"name":"Fern"}`), "spec-26"},
		{"converts numbers to text", replaceBody(`:7}`, `:"7"}`), "spec-23 30"},
		{"true is one", replaceBody(`"id":true`, `"id":1`), "spec-35"},
		{"names may be objects", replaceBody(`"name":{}`, `"name":"{}"`), "spec-36"},
		{"tags may be booleans", replaceBody(`"tag":true`, `"tag":"true"`), "spec-37"},
		{"converts booleans to text", replaceBody(`":true}`, `":"true"}`), "spec-36 37"},
		{"takes the first tag", replaceBody(`\["shade"\]`, `"shade"`), "spec-25"},
		{"takes the first plant", replaceBody(`^\[(.*)\]`, `$1`), "spec-29"},
		{"accepts forms", replaceBody(`^id=(\d+)&name=Fern`, `{"id":$1,"name":"Fern"}`), "spec-27"},
		{"accepts incomplete JSON", replaceBody(`"Fern"$`, `"Fern"}`), "spec-28"},
		{"stores a refused body", func(x *exchange) {
			refused := x.body
			x.body = strings.Replace(refused, `,"tag":7`, "", 1)
			x.send()
			x.body = refused
			x.send()
		}, "spec-30"},
		{"200 without a token", accept(`^$`), "spec-31"},
		{"accepts any token", accept(`^Bearer `), "spec-32 33"},
		{"compares the beginning of a token", accept(`^Bearer ` + credential), "spec-33"},
		{"accepts another scheme", accept(` ` + credential + `$`), "spec-34"},
		{"500 on bad JSON", func(x *exchange) {
			if x.send(); x.status == 400 && !json.Valid([]byte(x.body)) {
				x.status = 500
			}
		}, "spec-26 27 28"},
		{"plain-text errors", replaceError(400, "text/plain", "Bad Request"),
			"spec-15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 35 36 37"},
		{"errors have another type", replaceError(400, "text/json", `{"error":1,"message":"x"}`),
			"spec-15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 35 36 37"},
		{"errors have no message", replaceError(400, "application/json", `{"error":1}`),
			"spec-15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 35 36 37"},
		{"201 for 200", func(x *exchange) {
			if x.send(); x.status == 200 {
				x.status = 201
			}
		}, "spec-01 02 03 04 05 06 07 08 09 10 11 12 13 14 30"},
	} {
		t.Run(w.defect, func(t *testing.T) {
			t.Parallel()
			w.check(t, &honestServer{plants: map[int64]honestPlant{}}, conform.Options{}, conform.Levels[:1])
		})
	}
}

func testDefectsOfProduct(t *testing.T) {
	unsigned := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.Header.Del("Webhook-Signature") }}
	for _, w := range []wrongServer{
		{"none", none, ""},
		{"accepts duplicate keys", replaceBody(`"name":"Fern",("n.*me")|"a":1,`, "$1"), "store-04 05 06"},
		{"HTML 404", replaceError(404, "text/html", "<h1>Not Found</h1>"), "store-04 14 24 26 29 35"},
		{"list drops tags", replaceResponse("GET /plants", `,"tag":"\w+"`, ""), "store-36"},
		{"wrong order of pages", replaceResponse("GET /plants", `^\[({[^}]*}),({[^}]*})`, "[$2,$1"), "store-36 37 38"},
		{"GET /token says nothing", replaceResponse("GET /token", `(?s).+`, "{}"), "store-40"},
		{"another error code", replaceResponse("POST /plants", `:40016,`, ":40015,"), "store-11"},
		{"errors name no field", replaceResponse("POST /plants", `,"field":"name"`, ""), "store-11 16 17"},
		{"list is an object", replaceResponse("GET /plants", `^(\[.*\])`, `{"plants":$1}`), "sample-01 02 09 store-36 37 38"},
		{"no 412", without("If-Match"), "store-33 34"},
		{"ignores If-None-Match", without("If-None-Match"), "store-28 34"},
		{"missing WWW-Authenticate", func(x *exchange) {
			x.send()
			x.header.Del("WWW-Authenticate")
		}, "store-22 23"},
		{"ignores limit", func(x *exchange) {
			x.URL.RawQuery = regexp.MustCompile(`\blimit=[^&]*`).ReplaceAllString(x.URL.RawQuery, "")
			x.send()
		}, "sample-02 03 store-36 39"},
		{"accepts ids of any size", func(x *exchange) {
			if x.send(); strings.Contains(x.response, "40014") {
				x.status = 200
			}
		}, "spec-15 16 store-17"},
		{"204 deletes nothing", deleteNothing, "sample-09 store-35"},
		{"constant list", replaceResponse("GET /plants", `(?s)^\[.*`, `[{"name":"Fern"}]`), "sample-09 store-36 37 38"},
		{"no store", func(x *exchange) {
			if deleteNothing(x); x.Method+x.URL.Path == "GET/plants" && x.status == 200 {
				x.response = `[{"name":"Fern"}]`
			}
		}, "sample-09 store-35 36 37 38"},
	} {
		t.Run(w.defect, func(t *testing.T) {
			t.Parallel()
			w.checkProduct(t, false, nil)
		})
	}
	t.Run("forgets on restart", func(t *testing.T) {
		t.Parallel()
		wrongServer{"", none, "store-43"}.checkProduct(t, true, nil)
	})
	t.Run("unsigned webhook", func(t *testing.T) {
		t.Parallel()
		wrongServer{"", none, "store-42"}.checkProduct(t, false, unsigned)
	})
}

// checkProduct starts the product with a defect, which can be that it forgets its plants at a restart, or that
// webhooks are sent to a proxy.
func (w wrongServer) checkProduct(t *testing.T, forgets bool, proxy http.Handler) {
	t.Helper()
	p := &product{db: filepath.Join(t.TempDir(), "plants.db")}
	if proxy != nil {
		s := httptest.NewServer(proxy)
		defer s.Close()
		p.proxy, _ = url.Parse(s.URL)
	}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	defer func() { p.stop() }()
	restart := func(context.Context) error {
		if err := p.stop(); err != nil {
			return err
		}
		if forgets {
			p.db += ".new"
		}
		return p.start()
	}
	right := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(p.url.Load()) },
		Transport: &http.Transport{DisableKeepAlives: true}, // idle connections delay a stop
	}
	hooks, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := conform.Options{Webhooks: hooks, Verify: webhook.Verify, Restart: restart}
	w.check(t, right, o, conform.Levels)
}

// product is the service on SQLite, in this process.
type product struct {
	db    string
	proxy *url.URL // of webhooks
	url   atomic.Pointer[url.URL]
	stop  func() error
}

// start returns when the service accepts requests.
func (p *product) start() error {
	targets, err := webhook.ParseTargets("private")
	if err != nil {
		return err
	}
	st, err := sqlite.Open(context.Background(), p.db)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan string, 1), make(chan error, 1)
	cfg := server.Config{Listen: "127.0.0.1:0", OpsListen: "off", Token: credential, Drain: 5 * time.Second,
		Log: slog.New(slog.DiscardHandler), Started: func(address string) { started <- address }}
	cfg.MaxBody, cfg.Webhook = 1<<20, webhook.Config{Targets: targets, Proxy: p.proxy}
	go func() {
		defer close(ended)
		ended <- errors.Join(server.Run(ctx, cfg, st), st.Close())
	}()
	p.stop = func() error {
		cancel()
		return <-ended
	}
	select {
	case address := <-started:
		u, err := url.Parse(address)
		p.url.Store(u)
		return err
	case err := <-ended:
		return err
	}
}

// check runs the cases of the levels that the server claims, and compares those that failed.
func (w wrongServer) check(t *testing.T, right http.Handler, o conform.Options, levels []string) {
	t.Helper()
	s := httptest.NewServer(w.around(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method == "DELETE" && others.MatchString(r.URL.Path) {
			t.Errorf("the kit sends DELETE %s, which may be a plant of others", r.URL.Path)
		}
		right.ServeHTTP(out, r)
	})))
	defer s.Close()
	report, failed, last := runCases(t, s.URL, o), "", ""
	if !slices.Equal(report.Levels, levels) {
		t.Errorf("the levels are %q, want %q", report.Levels, levels)
	}
	for _, result := range report.Results {
		switch level, number, _ := strings.Cut(result.ID, "-"); {
		case result.Outcome == conform.Failed && level == last:
			failed += " " + number
		case result.Outcome == conform.Failed:
			failed, last = failed+" "+result.ID, level
		case result.Outcome == conform.Skipped && slices.Contains(levels, result.Level):
			t.Errorf("%s was skipped: %s", result.ID, result.Reason)
		}
	}
	if failed = strings.TrimSpace(failed); failed != w.fails {
		t.Errorf("the cases %q fail, want %q\n%s", failed, w.fails, failures(report))
	}
}

// others matches plants whose ids are no random ones.
var others = regexp.MustCompile(`^/plants/-?\d{1,11}$`)

// exchange is a request to a wrong server, and its response.
type exchange struct {
	*http.Request
	right          http.Handler
	body, response string
	status         int
	header         http.Header
}

// around returns a right server with the defect.
func (w wrongServer) around(right http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the client sends all of it
		x := &exchange{Request: r, right: right, body: string(body)}
		w.change(x)
		x.header.Del("Content-Length")
		maps.Copy(out.Header(), x.header)
		out.WriteHeader(x.status)
		io.WriteString(out, x.response)
	})
}

// send sends the request to the right server.
func (x *exchange) send() {
	x.Body, x.ContentLength = io.NopCloser(strings.NewReader(x.body)), int64(len(x.body))
	recorder := httptest.NewRecorder()
	x.right.ServeHTTP(recorder, x.Request)
	x.status, x.header, x.response = recorder.Code, recorder.Header(), recorder.Body.String()
}

// accept makes a credential valid.
func accept(pattern string) func(x *exchange) {
	return func(x *exchange) {
		if regexp.MustCompile(pattern).MatchString(x.Header.Get("Authorization")) {
			x.Header.Set("Authorization", "Bearer "+credential)
		}
		x.send()
	}
}

func without(header string) func(x *exchange) {
	return func(x *exchange) {
		x.Header.Del(header)
		x.send()
	}
}

func replaceBody(pattern, by string) func(x *exchange) {
	return func(x *exchange) {
		x.body = regexp.MustCompile(pattern).ReplaceAllString(x.body, by)
		x.send()
	}
}

func replaceResponse(request, pattern, by string) func(x *exchange) {
	return func(x *exchange) {
		if x.send(); x.Method+" "+x.URL.Path == request {
			x.response = regexp.MustCompile(pattern).ReplaceAllString(x.response, by)
		}
	}
}

// deleteNothing returns 204 to a DELETE, and keeps the plant.
func deleteNothing(x *exchange) {
	isDelete := x.Method == "DELETE" && strings.HasPrefix(x.URL.Path, "/plants/") && x.Header["If-Match"] == nil
	if isDelete {
		x.Method = "GET"
	}
	if x.send(); isDelete && x.status == 200 {
		x.status, x.header, x.response = 204, http.Header{}, ""
	}
}

func replaceError(status int, mediaType, text string) func(x *exchange) {
	return func(x *exchange) {
		if x.send(); x.status == status {
			x.header.Set("Content-Type", mediaType)
			x.response = text
		}
	}
}

// rounded returns the nearest double-precision number, if that is an int64.
func rounded(id string) string {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || float64(n) >= 1<<63 {
		return id
	}
	return strconv.FormatInt(int64(float64(n)), 10)
}
