// Package conform checks a server of the Plant Store API against the numbered cases of api/conform.yaml.
package conform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"plantstore/api"
)

// Case is a case of api/conform.yaml, which says what its members mean.
type Case struct {
	ID     string `json:"id"`
	Level  string `json:"level"`
	Title  string `json:"title"`
	Clause string `json:"clause"`
	Needs  string `json:"needs,omitzero"`
	Steps  []Step `json:"steps"`
	After  string `json:"after,omitzero"`
}

// Step is a request of a case, or what it waits for.
type Step struct {
	Send     string            `json:"send,omitzero"`
	Headers  map[string]string `json:"headers,omitzero"`
	Body     string            `json:"body,omitzero"`
	Base64   []byte            `json:"base64,omitzero"`
	Expect   Expectation       `json:"expect,omitzero"`
	Save     map[string]string `json:"save,omitzero"`
	Taken    string            `json:"taken,omitzero"`
	Optional bool              `json:"optional,omitzero"`
	Restart  bool              `json:"restart,omitzero"`
	Webhook  string            `json:"webhook,omitzero"`
	Secret   string            `json:"secret,omitzero"`
}

// The levels. Each has its own cases.
const (
	Specification = "specification"
	Sample        = "sample"
	PlantStore    = "plantstore"
)

// Levels are all levels, the basic one first.
var Levels = []string{Specification, Sample, PlantStore}

// Cases returns all cases in the order of their numbers.
func Cases() []Case {
	var file struct {
		Levels map[string]string
		Cases  []Case
	}
	d := json.NewDecoder(bytes.NewReader(api.Conform()))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		panic(err) // the file is embedded, and every test reads it
	}
	prefixes := map[string]string{"spec": Specification, "sample": Sample, "store": PlantStore}
	for i, c := range file.Cases {
		prefix, _, _ := strings.Cut(c.ID, "-")
		file.Cases[i].Level = prefixes[prefix]
	}
	return file.Cases
}

// Options are what a caller of Run sets.
type Options struct {
	URL    *url.URL
	Token  string
	Levels []string       // if empty, the levels that the server claims
	Only   *regexp.Regexp // of the ids and titles of cases; nil for all
	Known  []string       // ids of cases that fail

	Restart  func(context.Context) error // restarts the server; nil to skip cases that need it
	Webhooks net.Listener                // gets webhooks; nil to skip cases that need them
	// Verify returns an error unless the headers have a signature of the body with the secret.
	Verify func(secret string, header http.Header, body []byte, now time.Time) error

	Progress func(done, all int) // may be nil

	dial func(ctx context.Context, network, address string) (net.Conn, error) // of a test
}

// Selects reports whether the options name a case. A case of a level that is not claimed is still skipped.
func (o Options) Selects(c Case) bool {
	isOf := len(o.Levels) == 0 || slices.Contains(o.Levels, c.Level)
	return isOf && (o.Only == nil || o.Only.MatchString(c.ID) || o.Only.MatchString(c.Title))
}

// Outcomes of a case.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped"
	Known   = "known" // failed, as the caller expects
	Fixed   = "fixed" // passed, although the caller expects that it fails
)

// Result is what a case has shown.
type Result struct {
	ID       string   `json:"id"`
	Level    string   `json:"level"`
	Title    string   `json:"title"`
	Clause   string   `json:"clause"`
	Outcome  string   `json:"outcome"`
	Reason   string   `json:"reason,omitzero"`   // of a case that was skipped
	Request  string   `json:"request,omitzero"`  // as a command line, of the step that failed
	Response string   `json:"response,omitzero"` // status, headers and the beginning of the body
	Expected []string `json:"expected,omitzero"` // what the response lacks
}

// Report is the result of a run.
type Report struct {
	URL     string         `json:"url"`
	Date    time.Time      `json:"date"`
	Levels  []string       `json:"levels"`
	Counts  map[string]int `json:"counts"` // of each outcome
	Results []Result       `json:"results"`
}

// Of returns the counts of one level.
func (r Report) Of(level string) map[string]int {
	counts := map[string]int{}
	for _, result := range r.Results {
		if result.Level == level {
			counts[result.Outcome]++
		}
	}
	return counts
}

// OK reports whether nothing failed that the caller did not expect, and nothing passed that it expected to fail.
func (r Report) OK() bool { return r.Counts[Failed] == 0 && r.Counts[Fixed] == 0 }

const (
	maxRun      = 45 * time.Second // after which the cases that have not ended fail
	maxRequest  = 10 * time.Second
	maxWebhook  = 15 * time.Second
	maxRestart  = 20 * time.Second // until the server responds
	maxParallel = 8                // cases at a time
	maxBody     = 32 << 20         // bytes of a response
)

// ErrRefused is the error of a run if the token is invalid.
var ErrRefused = errors.New("the server refused the token: an empty POST /plants returned 401")

// Run runs the cases that the options select. It returns an error if the server does not respond to the first request,
// if ctx ends, or ErrRefused.
func Run(ctx context.Context, o Options) (Report, error) {
	limited, cancel := context.WithTimeout(ctx, maxRun)
	defer cancel()
	r := &runner{Options: o, secret: tokenPattern(o.Token), client: &http.Client{
		// An idle connection blocks a server that serves one at a time, and others close it without notice.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: o.dial, DisableCompression: true,
			DisableKeepAlives: true},
		Timeout:       maxRequest,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	claimed, err := r.claimed(limited)
	if err != nil {
		return Report{}, hiddenError{err, r.secret}
	}
	if len(o.Levels) == 0 {
		r.Levels = claimed
	}
	if o.Webhooks != nil {
		r.receiver = receive(o.Webhooks)
		defer r.receiver.server.Close()
	}
	report := Report{URL: o.URL.String(), Date: time.Now().UTC().Truncate(time.Second), Levels: r.Levels,
		Counts: map[string]int{}}
	cases := slices.DeleteFunc(Cases(), func(c Case) bool { return !o.Selects(c) })
	report.Results = r.runAll(limited, cases)
	for _, result := range report.Results {
		report.Counts[result.Outcome]++
	}
	return report, ctx.Err()
}

// claimed returns the levels that the description of the server names. It returns an error if the server does not
// respond, or if it refuses the token.
func (r *runner) claimed(ctx context.Context) ([]string, error) {
	variables := map[string]string{"token": r.Token}
	// An empty create is a request to which every server responds: the specification has no other operation.
	got, err := r.exchange(ctx, r.request(Step{Send: "POST /plants"}, variables))
	if err != nil || got.status == http.StatusUnauthorized {
		return nil, cmp.Or(err, ErrRefused)
	}
	got, _ = r.exchange(ctx, r.request(Step{Send: "GET /openapi.json"}, variables))
	var doc struct {
		Info struct {
			Levels []string `json:"x-conformance"`
		}
	}
	json.Unmarshal(got.body, &doc) // without a description, it claims the specification alone
	known := slices.DeleteFunc(slices.Clone(Levels), func(l string) bool { return !slices.Contains(doc.Info.Levels, l) })
	if len(known) == 0 {
		known = []string{Specification}
	}
	return known, nil
}

// runAll runs cases in parallel, and those that restart the server at the end, one at a time.
func (r *runner) runAll(ctx context.Context, cases []Case) []Result {
	results, done := make([]Result, len(cases)), 0
	var mu sync.Mutex // of done, and of Progress
	for _, alone := range []bool{false, true} {
		var group errgroup.Group
		group.SetLimit(maxParallel)
		for i, c := range cases {
			if (c.Needs == "restart") == alone {
				group.Go(func() error {
					results[i] = r.result(ctx, c)
					mu.Lock()
					defer mu.Unlock()
					if done++; r.Progress != nil {
						r.Progress(done, len(cases))
					}
					return nil
				})
			}
		}
		group.Wait()
	}
	return results
}

// result runs a case unless it must be skipped.
func (r *runner) result(ctx context.Context, c Case) Result {
	result := Result{ID: c.ID, Level: c.Level, Title: c.Title, Clause: c.Clause, Outcome: Skipped}
	switch {
	case !slices.Contains(r.Levels, c.Level):
		result.Reason = "level " + c.Level + " is not claimed; add --level " + c.Level
	case c.Needs == "restart" && r.Restart == nil:
		result.Reason = "needs --restart"
	case c.Needs == "webhook" && r.receiver == nil:
		result.Reason = "needs --webhook-listen"
	default:
		x := &execution{runner: r, variables: r.variables()}
		failed, skip := x.run(ctx, c)
		x.cleanUp(context.WithoutCancel(ctx), c)
		known := slices.Contains(r.Known, c.ID)
		result.Request, result.Response, result.Expected = failed.Request, failed.Response, failed.Expected
		switch {
		case skip != "":
			result.Reason = skip
		case failed.Expected != nil && known:
			result.Outcome = Known
		case failed.Expected != nil:
			result.Outcome = Failed
		case known:
			result.Outcome = Fixed
		default:
			result.Outcome = Passed
		}
	}
	return result
}

// response is what the server, or a sender of webhooks, has sent.
type response struct {
	status int // zero for a webhook
	header http.Header
	body   []byte
	url    *url.URL
	secret *regexp.Regexp // the token; nil for a webhook
}

// String returns the response as a person reads it.
func (r response) String() string {
	var b strings.Builder
	if r.status != 0 {
		fmt.Fprintf(&b, "%d %s\n", r.status, http.StatusText(r.status))
	}
	for _, name := range []string{"Content-Type", "WWW-Authenticate", "Allow", "ETag", "Link", "Location", "Webhook-Id",
		"Webhook-Timestamp", "Webhook-Signature", "Webhook-Topic"} {
		if value := strings.Join(r.header.Values(name), ", "); value != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	const most = 1500
	b.Write(r.body[:min(len(r.body), 64<<10)])
	text := hide(r.secret, b.String()) // before a part of the token is cut off
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.TrimRight(strings.ToValidUTF8(text, "\ufffd"), "\n")
}

type runner struct {
	Options
	client   *http.Client
	secret   *regexp.Regexp
	receiver *receiver
}

// tokenPattern matches a token, also as it is escaped in JSON, in a URL or in HTML. A token of less than 8 letters
// is part of many words, so it must be a whole word. One of less than 4 is no secret: the result is nil.
func tokenPattern(token string) *regexp.Regexp {
	var b strings.Builder
	for _, c := range []byte(token) {
		fmt.Fprintf(&b, `(?:\\?%s|(?i:\\u00%02[2]x|%%%02[2]x|&#0*%[2]d;|&#x0*%[2]x;|&\w+;))`, regexp.QuoteMeta(string(c)), c)
	}
	switch n := len(token); {
	case n < 4:
		return nil
	case n < 8 && regexp.MustCompile(`^\w+$`).MatchString(token):
		return regexp.MustCompile(`\b` + b.String() + `\b`)
	}
	return regexp.MustCompile(b.String())
}

// hide replaces the token in a text by the name of its variable.
func hide(token *regexp.Regexp, text string) string {
	if token != nil {
		text = token.ReplaceAllLiteralString(text, "$PLANTSTORE_TOKEN")
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// request returns the request of a step, with the variables in place of their names.
func (r *runner) request(s Step, variables map[string]string) *http.Request {
	method, target, _ := strings.Cut(expand(s.Send, variables), " ")
	u, err := r.URL.Parse(target)
	if err == nil && !strings.Contains(target, "://") {
		u, err = url.Parse(strings.TrimSuffix(r.URL.String(), "/") + target)
	}
	if err != nil || u.Scheme != r.URL.Scheme || u.Host != r.URL.Host { // the token is for no other server
		u = r.URL.JoinPath("link-to-another-server")
	}
	body := expand(cmp.Or(s.Body, string(s.Base64)), variables)
	request, _ := http.NewRequest(method, "", strings.NewReader(body)) // a test checks every method
	request.URL = u
	request.Header.Set("User-Agent", "plantstore-conform")
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token, ok := variables["token"]; ok {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for name, value := range s.Headers {
		if value == "" {
			request.Header.Del(name)
		} else {
			request.Header.Set(name, expand(value, variables))
		}
	}
	return request
}

// exchange sends a request and reads the response.
func (r *runner) exchange(ctx context.Context, request *http.Request) (response, error) {
	got, err := r.client.Do(request.WithContext(ctx))
	if err != nil {
		return response{}, err
	}
	defer got.Body.Close()
	var body []byte
	if got.StatusCode != http.StatusSwitchingProtocols { // or there is no time limit
		body, err = io.ReadAll(io.LimitReader(got.Body, maxBody+1))
	}
	if len(body) > maxBody {
		err = errors.New("the body is longer than 32 MiB")
	}
	return response{got.StatusCode, got.Header, body, request.URL, r.secret}, err
}

// hiddenError is an error whose text can have the token, such as that of a Location that can't be parsed.
type hiddenError struct {
	error
	token *regexp.Regexp
}

func (e hiddenError) Error() string { return hide(e.token, e.error.Error()) }
func (e hiddenError) Unwrap() error { return e.error }
