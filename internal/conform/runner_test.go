package conform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/httpapi"
)

// Each case is complete: its patterns compile, its JSON can be parsed, and its variables and error codes exist.
func TestCases(t *testing.T) {
	titles, n := map[string]bool{}, map[string]int{}
	for _, c := range Cases() {
		variables := (&runner{receiver: &receiver{}}).variables()
		must := func(ok bool, what ...any) {
			if !ok {
				t.Errorf("%s: invalid %q", c.ID, what)
			}
		}
		defined := func(text string) string {
			return os.Expand(text, func(name string) string {
				value, ok := variables[name]
				must(ok, "variable", name)
				return value
			})
		}
		n[c.Level]++
		must(strings.HasSuffix(c.ID, fmt.Sprintf("-%02d", n[c.Level])) && slices.Contains(Levels, c.Level), "number", n)
		must(c.Title != "" && !titles[c.Title] && c.Clause != "", "title or clause")
		must(slices.Contains([]string{"", "restart", "webhook"}, c.Needs), "needs", c.Needs)
		titles[c.Title] = true
		for _, s := range c.Steps {
			e, isRequest := s.Expect, regexp.MustCompile(`^(GET|HEAD|POST|PUT|PATCH|DELETE) [/$]\S*$`).MatchString(s.Send)
			must(isRequest || s.Restart && c.Needs == "restart" || s.Webhook != "" && c.Needs == "webhook", "step", s.Send)
			must(!bound.MatchString(s.Body) || strings.Contains(s.Body, "${word}"), "plant, which others may have", s.Body)
			for _, text := range slices.AppendSeq([]string{s.Send, s.Body, s.Secret}, maps.Values(s.Headers)) {
				defined(text)
			}
			for _, text := range []string{e.JSON, s.Webhook} {
				_, err := parse([]byte(defined(text)))
				must(text == "" || err == nil, "JSON", text)
			}
			for _, pattern := range slices.AppendSeq([]string{e.Status}, maps.Values(e.Headers)) {
				matches(pattern, "") // or it panics
			}
			for name, from := range s.Save {
				_, pattern, _ := strings.Cut(from, ": ")
				must(regexp.MustCompile(pattern).NumSubexp() == 1, "save", from)
				variables[name] = ""
			}
			isOf := func(f httpapi.Failure) bool { return int(f.Number) == e.Code && strconv.Itoa(f.Status()) == e.Status }
			must(e.Code == 0 || slices.ContainsFunc(httpapi.Catalogue(), isOf), "error", e.Code)
		}
		defined(c.After)
	}
}

// Lacks needs no other expectation, as of a webhook.
func TestLacks(t *testing.T) {
	got := response{header: http.Header{"Content-Type": {"application/json"}}, body: []byte(`{"name":"Fern","tag":""}`)}
	if unmet := (Expectation{Lacks: []string{"tag"}}).unmet(got, nil); len(unmet) != 1 {
		t.Errorf("%q", unmet)
	}
}

// Endpoints at one URL have different secrets. A case gets the webhook that its own secret signs, in any order. One
// that another secret signs fails it only if there is no other in time.
func TestSignedWebhook(t *testing.T) {
	sent := func(secrets ...string) (all []response) {
		for _, s := range secrets {
			all = append(all, response{header: http.Header{"Secret": {s}}, body: []byte(`{"id":1,"name":"Fern"}`)})
		}
		return all
	}
	verify := func(secret string, header http.Header, _ []byte, _ time.Time) error {
		if header.Get("Secret") != secret {
			return errors.New("another secret")
		}
		return nil
	}
	for _, test := range []struct {
		first, later []response
		fails        string
	}{
		{sent("ours"), nil, ""},
		{sent("theirs", "ours"), nil, ""},
		{sent("theirs"), sent("ours", "theirs"), ""},
		{sent("theirs"), nil, "another secret"},
		{nil, nil, "there was no such request"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &runner{Options: Options{Verify: verify}, receiver: &receiver{got: test.first}}
			time.AfterFunc(time.Second, func() {
				r.receiver.mu.Lock()
				defer r.receiver.mu.Unlock()
				r.receiver.got = append(r.receiver.got, test.later...)
			})
			x := &execution{runner: r, variables: map[string]string{"secret": "ours"}}
			failed, _ := x.run(t.Context(), Case{Steps: []Step{{Webhook: `{"id":1}`, Secret: "${secret}"}}})
			if !strings.Contains(failed.Response, test.fails) || (failed.Expected != nil) != (test.fails != "") {
				t.Errorf("%q, then %q: %+v", test.first, test.later, failed)
			}
		})
	}
}

const token = `Zq9/tok+en="x`

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// runWith runs the cases whose numbers match a pattern against a server, with the clock of a bubble.
func runWith(t *testing.T, o Options, pattern string, server http.HandlerFunc) (report Report, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := make(pipes)
		var probed atomic.Bool
		s := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Header.Get("Accept-Encoding") != "" {
				t.Error("a response may be compressed, which the command line does not ask for")
			}
			if !r.Close {
				t.Error("the connection stays open, and blocks a server that serves one at a time")
			}
			if r.Body = io.NopCloser(bytes.NewReader(body)); probed.Swap(true) {
				server(w, r)
			}
		})}
		go s.Serve(l)
		o.dial = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			l <- theirs
			return ours, nil
		}
		o.URL, _ = url.Parse("http://127.0.0.1/v1/")
		o.Token, o.Only = cmp.Or(o.Token, token), regexp.MustCompile(pattern)
		start := time.Now()
		var err error
		if report, err = Run(t.Context(), o); err != nil {
			t.Error(err)
		}
		took = time.Since(start)
		time.Sleep(time.Minute) // of the bubble: every handler ends
		close(l)
		s.Close()
	})
	return report, took
}

// The run ends in a bounded time and memory, whatever the server does, and the case fails.
func TestWrongConnections(t *testing.T) {
	requests, written := 0, 0
	busy := func(times int, after string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if requests++; requests <= times {
				w.Header().Set("Retry-After", after)
				w.WriteHeader(http.StatusTooManyRequests)
			}
			io.WriteString(w, `{"name":"x"}`)
		}
	}
	endless := func(size int, pause time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for {
				n, err := w.Write(make([]byte, size))
				if http.NewResponseController(w).Flush(); err != nil {
					return
				}
				written += n
				time.Sleep(pause)
			}
		}
	}
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(c, text)
			io.Copy(io.Discard, c)
		}
	}
	const upgrade = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
	for _, test := range []struct {
		name     string
		server   http.HandlerFunc
		took     time.Duration
		outcome  string
		response string
		requests int
	}{
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, maxRequest, Failed, "deadline", 0},
		{"a byte each second", endless(1, time.Second), maxRequest, Failed, "deadline", 0},
		{"endless", endless(1<<16, 0), 0, Failed, "the body is longer than 32 MiB", 0},
		{"sends 20 MiB", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"name":"`+strings.Repeat("x", 20<<20)+`"}`)
		}, 0, Passed, "", 0},
		{"closes", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, Failed, "EOF", 0},
		{"switches protocols", raw(upgrade), 0, Failed, "101 ", 0},
		{"is not HTTP", raw("220 mail.example\r\n\r\n"), 0, Failed, "malformed", 0},
		{"is not UTF-8", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "{\"name\":\"\xff\"}")
		}, 0, Failed, `{"name":"` + "\ufffd", 0},
		{"redirects", func(w http.ResponseWriter, r *http.Request) {
			requests++
			http.Redirect(w, r, "/v1/other", http.StatusTemporaryRedirect)
		}, 0, Failed, "307 ", 1},
		{"busy twice", busy(2, "2"), 4 * time.Second, Passed, "", 3},
		{"busy twice, in the past", busy(2, "-1"), 0, Passed, "", 3},
		{"always busy", busy(100, "5"), 25 * time.Second, Failed, "429 ", 6},
		{"busy for a minute", busy(1, "60"), 0, Failed, "429 ", 1},
	} {
		requests, written = 0, 0
		report, took := runWith(t, Options{}, "^spec-02$", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				test.server(w, r)
			}
		})
		if got := report.Results[0]; took != test.took || got.Outcome != test.outcome || requests != test.requests ||
			!strings.Contains(got.Response, test.response) || written > maxBody+2<<20 {
			t.Errorf("%s: after %v, %d requests and %d bytes: %+v", test.name, took, requests, written, got)
		}
	}
	for _, hangs := range []string{"", "DELETE"} {
		report, took := runWith(t, Options{Levels: Levels}, "", func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Method, hangs) {
				<-r.Context().Done()
			}
		})
		if took > time.Minute || report.Counts[Passed] > 1 || len(report.Results) != len(Cases()) {
			t.Errorf("a server that hangs on each %s request: after %v, %v", hangs, took, report.Counts)
		}
	}
}

// A plant with a random id is deleted even if the response to its create was lost. One at a bound of an int64 is
// deleted only if the response was 2xx: it may belong to others.
func TestCleanUp(t *testing.T) {
	for _, status := range []int{0, 200, 500} {
		var mu sync.Mutex // of created and deleted
		created, deleted := map[string]bool{}, map[string]bool{}
		runWith(t, Options{}, "^spec-1[1-6]$", func(w http.ResponseWriter, r *http.Request) {
			id, isDelete := strings.CutPrefix(r.URL.Path, "/v1/plants/")
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			if found := regexp.MustCompile(`"id":(-?\d+)`).FindSubmatch(body); found != nil {
				created[string(found[1])] = true
			}
			switch {
			case isDelete && r.Method == http.MethodDelete:
				deleted[id] = true
			case status == 0:
				panic(http.ErrAbortHandler)
			default:
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				w.Write(body)
			}
		})
		for id := range created {
			isBound := strings.HasPrefix(strings.TrimPrefix(id, "-"), "92233720368547758")
			if deleted[id] != (!isBound || status == 200 && !strings.HasSuffix(id, "9")) {
				t.Errorf("status %d: %s is deleted: %t", status, id, deleted[id])
			}
		}
		if len(created) < 4 {
			t.Errorf("status %d: %d creates", status, len(created))
		}
	}
}

// A level that the server does not claim is skipped, and so is a case for which the token lacks a scope.
func TestSkipped(t *testing.T) {
	for claim, want := range map[string][]string{
		"": {Specification}, "<html>": {Specification}, `"x-conformance":"sample"`: {Specification},
		`"x-conformance":["grown"]`: {Specification}, `"x-conformance":["plantstore","grown","sample"]`: {Sample, PlantStore},
	} {
		report, _ := runWith(t, Options{}, "-0[14]$", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/openapi.json" && r.Header.Get("Authorization") != "Bearer "+token {
				return // the server publishes its description to users only
			}
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"error":40301,"message":"no scope","info":{%s}}`, claim)
		})
		for _, r := range report.Results {
			outcome, reason := Skipped, "no scope"
			if !slices.Contains(want, r.Level) {
				reason = "level " + r.Level + " is not claimed; add --level " + r.Level
			} else if r.Level == Specification {
				outcome, reason = Failed, ""
			}
			if r.Outcome != outcome || r.Reason != reason || !slices.Equal(report.Levels, want) {
				t.Errorf("the claim %s is %q: %+v", claim, report.Levels, r)
			}
		}
	}
}

// The specification has no scopes. There, a case is skipped only if the challenge says that the token lacks one.
func TestLacksScope(t *testing.T) {
	for challenge, want := range map[string]string{
		"": Failed, `Bearer error="invalid_token"`: Failed, `Bearer realm="x", error="insufficient_scope"`: Skipped,
	} {
		for _, message := range []string{"", "no scope"} {
			report, _ := runWith(t, Options{}, "spec-01", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", challenge)
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, `{"error":403,"message":%q}`, message)
			})
			r, reason := report.Results[0], ""
			if want == Skipped {
				reason = cmp.Or(message, "the token lacks a scope")
			}
			if r.Outcome != want || r.Reason != reason {
				t.Errorf("403 with %q is %+v, want %s, %q", challenge, r, want, reason)
			}
		}
	}
}

// No report has the token or a part of it, whatever the server does with it. A Link to another server is not followed.
func TestToken(t *testing.T) {
	inJSON, _ := json.Marshal(token)
	slash, long := strings.ReplaceAll(string(inJSON), "/", `\/`), strings.Repeat("x", 1440)
	escaped := ""
	for _, c := range token {
		escaped += fmt.Sprintf(`\u%04X`, c)
	}
	for _, text := range []string{token, escaped, string(inJSON), slash, url.QueryEscape(token), html.EscapeString(token),
		strings.NewReplacer("/", "&#x2F;", "+", "&#0043;", "=", "&#X003d;", `"`, "&quot;").Replace(token), long + token,
		long + slash, long + strings.Repeat("x", 55) + token, strings.Repeat(token, 100), "\x00\x1b]]>" + token} {
		report, _ := runWith(t, Options{Levels: Levels, Known: []string{"store-01"}}, "(spec-|store-)(01|02|28|36)",
			func(w http.ResponseWriter, r *http.Request) {
				header := strings.TrimPrefix(text, "\x00\x1b")
				w.Header().Set("Content-Type", header)
				w.Header().Set("ETag", `"`+header+`"`)
				if r.Method == http.MethodPost {
					fmt.Fprintf(w, `{"error":40301,"message":%s,"x":"%s"}`, inJSON, text)
					return
				}
				w.WriteHeader(http.StatusTeapot)
				io.WriteString(w, text)
			})
		var all strings.Builder
		if err := report.JUnit(&all); err != nil || xml.Unmarshal([]byte(all.String()), new(struct{})) != nil {
			t.Errorf("JUnit, %v: %s", err, all.String())
		}
		for _, r := range report.Results {
			all.WriteString(strings.Join(append(r.Lines(), r.Reason, r.Request, r.Response), "\n"))
		}
		if part := regexp.MustCompile(`.{0,50}(Zq|q9|9/|u005A)`).FindString(all.String()); part != "" {
			t.Errorf("the token as %q is in the report: %q", text, part)
		}
	}
	base, _ := url.Parse("https://a.example/v1")
	for next, want := range map[string]string{
		"https://a.example/plants?after=1": "https://a.example/plants?after=1",
		"https://b.example/plants":         "https://a.example/v1/link-to-another-server",
		"http://a.example/plants":          "https://a.example/v1/link-to-another-server",
	} {
		got := (&runner{Options: Options{URL: base}}).request(Step{Send: "GET ${next}"}, map[string]string{"next": next})
		if got.URL.String() != want {
			t.Errorf("a Link to %s sends a request to %s, want %s", next, got.URL, want)
		}
	}
}

// A short token of letters is hidden where it is a whole word. The command line of a request is still what was sent.
func TestShortToken(t *testing.T) {
	for _, test := range []struct{ token, text, want string }{
		{"abc", "abc", "abc"},
		{"test", "test, testing, attest, test_1", "*, testing, attest, test_1"},
		{"t/st", `"t/st" t&#47;st t%2fst t\/st t/sts`, `"*" * * * *s`},
		{"ab==", `"ab==" ab== ab&#61;=`, `"*" * *`},
		{"testing", "testing testings", "* testings"},
		{"testings", "atestingsa", "a*a"},
	} {
		if got := strings.ReplaceAll(hide(tokenPattern(test.token), test.text), "$PLANTSTORE_TOKEN", "*"); got != test.want {
			t.Errorf("%q without the token %q is %q, want %q", test.text, test.token, got, test.want)
		}
	}
	report, _ := runWith(t, Options{Levels: Levels, Token: "Fern"}, "^(spec-03|store-33)$",
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"Fern"`)
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodGet || r.URL.Path == "/v1/plants" && r.Header.Get("If-Match") == "" {
				io.WriteString(w, `{"tag":"Fern","name":"Fern"}`)
			}
		})
	for i, want := range []string{`,"name":"Fern"}'`, `-H "If-Match: "$PLANTSTORE_TOKEN""`} {
		if r := report.Results[i]; !strings.Contains(r.Request, want) || strings.Contains(r.Response, "Fern") {
			t.Errorf("%+v, want a request that has %s", r, want)
		}
	}
}

// The clause of each case is in the page of the specification, or in a document of the project.
func TestClauses(t *testing.T) {
	space := regexp.MustCompile("[\\s`]+")
	literal := func(text string) string { return strings.ToLower(space.ReplaceAllString(text, "")) }
	const newPlant = "A NewPlant object: id (integer int64, required), name (string, required), tag (string, optional)"
	// The sentences of the specification that cases check.
	const page = "Every request is authenticated with an HTTP bearer credential (see Authentication). " +
		"Required fields of a NewPlant: id, name. " +
		"Required. " + newPlant + ". " +
		"A Plant object: name (string, required), tag (string, optional). The response shape declares no id field. " +
		"When a valid NewPlant body is sent with a valid credential, the service responds 200 with a Plant body. " +
		"When the request fails, the service responds 400 with an Error body containing error (int32) and " +
		"message (string). " +
		"The credential is sent in the Authorization header in the form `Bearer <ACCESS_TOKEN>`."
	var documents []string
	for _, name := range []string{"api/testdata/sample.yaml", "api/openapi.yaml", "docs/bodies.md", "docs/errors.md",
		"docs/decisions.md"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, literal(string(text)))
	}
	for _, c := range Cases() {
		sources := documents
		if c.Level == Specification {
			sources = []string{literal(page)}
		}
		has := func(source string) bool { return strings.Contains(source, literal(c.Clause)) }
		if len(c.Clause) < 20 || !slices.ContainsFunc(sources, has) {
			t.Errorf("%s: no document has the clause %q", c.ID, c.Clause)
		}
	}
}

// The command line of each request sends what the runner has sent.
func TestCommandLine(t *testing.T) {
	type sent struct {
		target, body string
		header       http.Header
	}
	var mu sync.Mutex // of got
	var got []sent
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for _, name := range []string{"User-Agent", "Accept", "Accept-Encoding", "Content-Length"} { // curl has its own
			r.Header.Del(name)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, sent{r.Method + " " + r.Host + r.RequestURI, string(body), r.Header})
	}))
	defer s.Close()
	base, _ := url.Parse(s.URL + "/v1/")
	r := &runner{Options: Options{URL: base, Token: token}, client: s.Client()}
	var lines []string
	for _, c := range Cases() {
		x := &execution{runner: r, variables: r.variables()}
		maps.Copy(x.variables, map[string]string{"etag": `"it's"`, "next": s.URL + "/v1/plants?x=%22", "webhook": "$HOME"})
		for _, step := range c.Steps {
			if step.Send != "" {
				x.exchange(t.Context(), x.request(step, x.variables))
				lines = append(lines, x.commandLine(step))
			}
		}
	}
	requests := func() []sent {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
	n := len(requests())
	curl := exec.CommandContext(t.Context(), "sh", "-c", strings.Join(lines, "\n"))
	curl.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+token)
	if out, err := curl.CombinedOutput(); err != nil || len(requests()) != 2*n || n < 100 {
		t.Fatalf("%v: %d requests, and %d of curl: %.200s", err, n, len(got)-n, out)
	}
	for i, want := range got[:n] {
		if curl := got[n+i]; !reflect.DeepEqual(curl, want) {
			t.Errorf("the runner has sent\n%+v\nthe command\n%s\nhas sent\n%+v", want, lines[i], curl)
		}
	}
}
