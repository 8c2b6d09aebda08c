package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
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
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/httpapi"
)

// Each case is complete: its patterns compile, its JSON can be parsed, and its variables and error codes exist.
func TestCases(t *testing.T) {
	titles, n := map[string]bool{}, map[string]int{}
	for _, c := range Cases() {
		prefix, _, _ := strings.Cut(c.ID, "-")
		if n[prefix]++; c.ID != fmt.Sprintf("%s-%02d", prefix, n[prefix]) || !slices.Contains(Levels, c.Level) {
			t.Errorf("case %s is number %d of level %q", c.ID, n[prefix], c.Level)
		}
		if titles[c.Title] || c.Title == "" || c.Clause == "" || !slices.Contains([]string{"", "restart", "webhook"}, c.Needs) {
			t.Errorf("%s: title %q, clause %q, needs %q", c.ID, c.Title, c.Clause, c.Needs)
		}
		titles[c.Title] = true
		x := &execution{runner: &runner{}}
		x.variables = x.runner.variables()
		if c.Needs == "webhook" {
			x.variables["webhook"] = "http://127.0.0.1:9000/"
		}
		defined := func(text string) string {
			return os.Expand(text, func(name string) string {
				if _, ok := x.variables[name]; !ok {
					t.Errorf("%s: the variable %q of %q is not defined", c.ID, name, text)
				}
				return x.variables[name]
			})
		}
		for _, s := range c.Steps {
			method, target, _ := strings.Cut(s.Send, " ")
			isRequest := regexp.MustCompile("^(GET|HEAD|POST|PUT|PATCH|DELETE)$").MatchString(method) && target != ""
			if !isRequest && !s.Restart && s.Webhook == "" || s.Webhook != "" && c.Needs == "" {
				t.Errorf("%s has the step %+v", c.ID, s)
			}
			for _, text := range append(mapValues(s.Headers), target, s.Body, s.Secret) {
				defined(text)
			}
			for _, text := range []string{s.Expect.JSON, s.Webhook} {
				if _, err := parse([]byte(defined(text))); text != "" && err != nil {
					t.Errorf("%s: %s: %v", c.ID, text, err)
				}
			}
			for _, pattern := range append(mapValues(s.Expect.Headers), s.Expect.Status) {
				regexp.MustCompile(pattern)
			}
			for name, from := range s.Save {
				if _, pattern, _ := strings.Cut(from, ": "); regexp.MustCompile(pattern).NumSubexp() != 1 {
					t.Errorf("%s saves %q", c.ID, from)
				}
				x.variables[name] = "x"
			}
			isOf := func(f httpapi.Failure) bool {
				return int(f.Number) == s.Expect.Code && strconv.Itoa(f.Status()) == s.Expect.Status
			}
			if s.Expect.Code != 0 && !slices.ContainsFunc(httpapi.Catalogue(), isOf) {
				t.Errorf("%s expects error %d, which does not exist", c.ID, s.Expect.Code)
			}
		}
		defined(c.After)
	}
}

func mapValues(m map[string]string) (all []string) {
	for _, value := range m {
		all = append(all, value)
	}
	return all
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
		s := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); r.URL.Path != "/v1/openapi.json" && r.URL.RawQuery != "limit=1" {
				r.Body = io.NopCloser(bytes.NewReader(body))
				server(w, r)
			}
		})}
		go s.Serve(l)
		o.dial = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			l <- theirs
			return ours, nil
		}
		o.URL, _ = url.Parse("http://127.0.0.1/v1")
		o.Token, o.Only = token, regexp.MustCompile(pattern)
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
		return func(w http.ResponseWriter, r *http.Request) {
			for w.Header().Set("Content-Type", "application/json"); ; time.Sleep(pause) {
				n, err := w.Write(make([]byte, size))
				if http.NewResponseController(w).Flush(); err != nil {
					return
				}
				written += n
			}
		}
	}
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(c, text)
			io.Copy(io.Discard, c)
		}
	}
	for _, test := range []struct {
		name     string
		server   http.HandlerFunc
		took     time.Duration
		outcome  string
		response string
		requests int
	}{
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, maxRequest, Failed, "deadline exceeded", 0},
		{"a byte each second", endless(1, time.Second), maxRequest, Failed, "deadline exceeded", 0},
		{"endless", endless(1<<16, 0), 0, Failed, "200 OK", 0},
		{"closes", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, Failed, "EOF", 0},
		{"switches protocols", raw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), 0, Failed, "101 ", 0},
		{"is not HTTP", raw("220 mail.example\r\n\r\n"), 0, Failed, "malformed", 0},
		{"is not UTF-8", func(w http.ResponseWriter, r *http.Request) {
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
			!strings.Contains(got.Response, test.response) || written > 6<<20 {
			t.Errorf("%s: after %v, %d requests and %d bytes: %+v", test.name, took, requests, written, got)
		}
	}
	for name, hangs := range map[string]string{"every request": "", "every delete": "DELETE"} {
		report, took := runWith(t, Options{Levels: Levels}, "", func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Method, hangs) {
				<-r.Context().Done()
			}
		})
		if took > time.Minute || report.Of(Specification)[Passed] > 0 || len(report.Results) != len(Cases()) {
			t.Errorf("a server that hangs on %s: after %v, %v", name, took, report.Counts)
		}
	}
}

// No report has the token or a part of it, whatever the server does with it. A Link to another server is not followed.
func TestToken(t *testing.T) {
	escaped := ""
	for _, c := range token {
		escaped += fmt.Sprintf("\\u%04X", c)
	}
	inJSON, _ := json.Marshal(token)
	slash := strings.ReplaceAll(string(inJSON), "/", `\/`)
	for _, text := range []string{
		token, escaped, string(inJSON), slash, url.QueryEscape(token), strings.Repeat("x", 1495) + token,
		strings.Repeat("x", 1440) + token, strings.Repeat("x", 1440) + slash, strings.Repeat(token, 100), "\x00\x1b]]>" + token,
	} {
		report, _ := runWith(t, Options{Levels: Levels, Known: []string{"store-01"}}, "(spec-|store-)(01|02|28|36)",
			func(w http.ResponseWriter, r *http.Request) {
				h, header := w.Header(), strings.NewReplacer("\x00", "", "\x1b", "").Replace(text)
				h.Set("Content-Type", header)
				h.Set("ETag", `"`+header+`"`)
				if r.Method == http.MethodPost {
					fmt.Fprintf(w, `{"error":40301,"message":%s,"x":"%s"}`, inJSON, text)
					return
				}
				w.WriteHeader(http.StatusTeapot)
				io.WriteString(w, text)
			})
		var junit bytes.Buffer
		if err := report.JUnit(&junit); err != nil || xml.Unmarshal(junit.Bytes(), new(struct{})) != nil {
			t.Errorf("JUnit, %v: %s", err, junit.String())
		}
		all := junit.String()
		for _, r := range report.Results {
			all += strings.Join(append(r.Lines(), r.Reason, r.Request, r.Response), "\n")
		}
		if at := regexp.MustCompile(`Zq|q9|9/|u005A`).FindStringIndex(all); at != nil {
			t.Errorf("the token as %q is in the report: %q", text, all[max(0, at[0]-80):min(len(all), at[1]+20)])
		}
	}
	for next, want := range map[string]string{
		"https://a.example/plants?after=1": "https://a.example/plants?after=1",
		"https://b.example/plants":         "https://a.example/v1/link-to-another-server",
		"http://a.example/plants":          "https://a.example/v1/link-to-another-server",
	} {
		base, _ := url.Parse("https://a.example/v1")
		r := &runner{Options: Options{URL: base}}
		got := r.request(Step{Send: "GET ${next}"}, map[string]string{"next": next, "token": token})
		if got.URL.String() != want {
			t.Errorf("a Link to %s sends a request to %s, want %s", next, got.URL, want)
		}
	}
}

// differing have a command line that is wrong.
var differing = []string{"spec-33", "store-34"}

// The command line of each request sends what the runner has sent.
func TestCommandLine(t *testing.T) {
	type sent struct {
		target, body string
		header       http.Header
	}
	var got []sent
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for _, name := range []string{"User-Agent", "Accept", "Content-Length"} { // curl has its own
			r.Header.Del(name)
		}
		got = append(got, sent{r.Method + " " + r.Host + r.RequestURI, string(body), r.Header})
	}))
	defer s.Close()
	base, _ := url.Parse(s.URL + "/v1/")
	r := &runner{Options: Options{URL: base, Token: token}, client: s.Client()}
	r.client.Transport.(*http.Transport).DisableCompression = true
	var lines []string
	for _, c := range Cases() {
		x := &execution{runner: r, variables: r.variables()}
		maps.Copy(x.variables, map[string]string{"etag": `"it's"`, "next": s.URL + "/v1/plants?x=%22", "webhook": "$HOME"})
		for _, step := range c.Steps {
			if step.Send != "" && !slices.Contains(differing, c.ID) {
				x.exchange(t.Context(), x.request(step, x.variables))
				lines = append(lines, x.commandLine(step))
			}
		}
	}
	n := len(got)
	curl := exec.CommandContext(t.Context(), "sh", "-c", strings.Join(lines, "\n"))
	curl.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+token)
	if out, err := curl.CombinedOutput(); err != nil || len(got) != 2*n || n < 100 {
		t.Fatalf("%v: %d requests, and %d of curl: %.200s", err, n, len(got)-n, out)
	}
	for i, want := range got[:n] {
		if curl := got[n+i]; !reflect.DeepEqual(curl, want) {
			t.Errorf("the runner has sent\n%+v\nthe command\n%s\nhas sent\n%+v", want, lines[i], curl)
		}
	}
}

var _ = sync.Mutex{}
