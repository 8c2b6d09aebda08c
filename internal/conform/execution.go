package conform

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// execution is a case that runs.
type execution struct {
	*runner
	variables map[string]string
	created   []string // ids of plants that may exist now
}

// variables returns the variables of a case.
func (r *runner) variables() map[string]string {
	id, big := 1<<40+rand.Int64N(1<<52), int64(1)<<60+256*rand.Int64N(1<<50)+1 // a double has the same value for both
	v := map[string]string{
		"token": r.Token, "word": "w" + strconv.FormatUint(rand.Uint64()|1<<63, 36), "long": strings.Repeat("x", 2000),
		"high": strconv.FormatInt(1<<63-2-rand.Int64N(1<<40), 10), "low": strconv.FormatInt(-1<<63+1+rand.Int64N(1<<40), 10),
		"big": strconv.FormatInt(big, 10), "big2": strconv.FormatInt(big+1, 10),
	}
	for i, name := range []string{"before", "id", "id2", "id3"} {
		v[name] = strconv.FormatInt(id+int64(i), 10)
	}
	if r.receiver != nil {
		v["webhook"] = r.receiver.url
	}
	return v
}

// expand puts variables in place of their names.
func expand(text string, variables map[string]string) string {
	return os.Expand(text, func(name string) string { return variables[name] })
}

// run runs the steps of a case. It returns what failed, or a reason to skip the case.
func (x *execution) run(ctx context.Context, c Case) (failed Result, skip string) {
	for _, s := range c.Steps {
		var got response
		var err error
		var expected string
		switch {
		case s.Restart:
			failed.Request, expected = "--restart", "a command that succeeds, and then a response to each request"
			err = x.restart(ctx)
		case s.Webhook != "":
			want := expand(s.Webhook, x.variables)
			failed.Request = "a webhook to " + x.receiver.url
			expected = fmt.Sprintf("a POST request with %s within %v, signed if there is a secret", want, maxWebhook)
			secret := expand(s.Secret, x.variables)
			got, err = x.receiver.wait(ctx, want, func(w response) error { // another case may have an endpoint at the URL
				if secret == "" {
					return nil
				}
				return x.Verify(secret, w.header, w.body, time.Now())
			})
		default:
			failed.Request, expected = x.commandLine(s), "a response"
			if got, err = x.send(ctx, s); s.Optional {
				err = nil
			}
		}
		if s.Taken != "" && got.status == http.StatusBadRequest {
			return Result{}, s.Taken
		}
		if err == nil && !s.Optional && !s.Restart {
			failed.Expected = s.Expect.unmet(got, x.variables)
		}
		if err == nil && failed.Expected == nil {
			expected = "a header or body for each of " + strings.Join(slices.Sorted(maps.Keys(s.Save)), ", ")
			err = x.save(s, got)
		}
		failed.Response = got.String()
		if err != nil {
			failed.Expected = []string{expected}
			failed.Response = strings.TrimSpace(failed.Response + "\n" + err.Error())
		}
		if failed.Expected != nil {
			failed.Response = hide(x.secret, failed.Response)
			return failed, hide(x.secret, c.mayLack(got))
		}
	}
	return Result{}, ""
}

// mayLack returns why a case can't run with the token or the database. The specification has no error numbers.
func (c Case) mayLack(got response) (reason string) {
	var e struct {
		Error   int
		Message string
	}
	json.Unmarshal(got.body, &e)
	challenge := strings.Join(got.header.Values("WWW-Authenticate"), ", ")
	switch {
	case got.status == http.StatusForbidden && strings.Contains(challenge, "insufficient_scope"):
		return cmp.Or(e.Message, "the token lacks a scope")
	case c.Level != Specification && e.Error/100 == got.status && (e.Error == 40301 || e.Error == 50102):
		return e.Message
	}
	return ""
}

// send sends the request of a step. If the server asks for a short pause, it repeats the request after it.
func (x *execution) send(ctx context.Context, s Step) (response, error) {
	body, creates := cmp.Or(s.Body, string(s.Base64)), strings.HasPrefix(s.Send, "POST /plants")
	if creates && ctx.Err() == nil { // a response can be lost
		for _, id := range random.FindAllString(body, -1) {
			x.created = append(x.created, expand(id, x.variables))
		}
	}
	for try := 0; ; try++ {
		got, err := x.exchange(ctx, x.request(s, x.variables))
		if creates && got.status/100 == 2 {
			x.created = append(x.created, bound.FindAllString(body, -1)...)
		}
		wait, e := strconv.Atoi(got.header.Get("Retry-After"))
		busy := got.status == http.StatusTooManyRequests || got.status == http.StatusServiceUnavailable
		if err != nil || e != nil || !busy || wait > 5 || try == 5 {
			return got, err
		}
		select {
		case <-time.After(time.Duration(wait) * time.Second):
		case <-ctx.Done():
			return got, ctx.Err()
		}
	}
}

// The kit deletes plants with these ids: random ones, and bounds of an int64, which others can have created.
var (
	random = regexp.MustCompile(`-?\$\{(before|id|id2|id3|big|big2|high|low)\}`)
	bound  = regexp.MustCompile(`-?922337203685477580[78]`)
)

// save sets the variables that a step takes from its response.
func (x *execution) save(s Step, got response) error {
	for name, from := range s.Save {
		header, pattern, _ := strings.Cut(from, ": ")
		text := strings.Join(got.header.Values(header), ", ")
		if header == "body" {
			text = string(got.body)
		}
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		switch {
		case found == nil && !s.Optional:
			return fmt.Errorf("%s does not match %s", header, pattern)
		case found == nil:
		case header == "Link":
			u, err := got.url.Parse(found[1])
			if err != nil {
				return err
			}
			x.variables[name] = u.String()
		default:
			x.variables[name] = found[1]
		}
	}
	return nil
}

// restart restarts the server, and waits until it responds.
func (x *execution) restart(ctx context.Context) error {
	err := x.Restart(ctx)
	for end := time.Now().Add(maxRestart); err == nil; time.Sleep(100 * time.Millisecond) {
		_, err = x.exchange(ctx, x.request(Step{Send: "POST /plants"}, x.variables))
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && time.Now().Before(end) {
			err = nil // not yet
		}
	}
	return err
}

// cleanUp deletes what the case has created, if the server supports that.
func (x *execution) cleanUp(ctx context.Context, c Case) {
	ctx, cancel := context.WithTimeout(ctx, maxRequest)
	defer cancel()
	requests := []string{}
	if c.After != "" && !strings.HasSuffix(expand(c.After, x.variables), "/") {
		requests = append(requests, c.After)
	}
	slices.Sort(x.created)
	for _, id := range slices.Compact(x.created) {
		requests = append(requests, "DELETE /plants/"+id)
	}
	for _, send := range requests {
		x.send(ctx, Step{Send: send})
	}
}

// commandLine returns the request of a step as a line for a shell.
func (x *execution) commandLine(s Step) string {
	shown := map[string]string{}
	for name, value := range x.variables {
		shown[name] = hide(x.secret, value) // the server has sent some of them
	}
	shown["token"], shown["webhook"] = "$PLANTSTORE_TOKEN", x.variables["webhook"]
	request := x.request(s, shown)
	line, data := "curl -i", expand(cmp.Or(s.Body, string(s.Base64)), shown)
	switch {
	case s.Base64 != nil:
		line, data = "echo "+base64.StdEncoding.EncodeToString([]byte(data))+" | base64 -d | "+line, "@-"
	case request.Method == http.MethodHead:
		line = "curl -I"
	}
	switch {
	case request.Method == http.MethodHead, request.Method == http.MethodGet && data == "",
		request.Method == http.MethodPost && data != "":
	default:
		line += " -X " + request.Method
	}
	line += " " + quote(request.URL.String())
	request.Header.Del("User-Agent")
	for _, name := range slices.Sorted(maps.Keys(request.Header)) {
		value := name + ": " + request.Header.Get(name)
		if strings.TrimSpace(request.Header.Get(name)) == "" {
			value = name + ";" // curl omits a header that ends with a colon
		}
		if strings.Contains(value, shown["token"]) {
			line += ` -H "` + value + `"` // the shell expands the variable
		} else {
			line += " -H " + quote(value)
		}
	}
	if data != "" && request.Header.Get("Content-Type") == "" {
		line += " -H 'Content-Type:'" // or curl adds one
	}
	if data != "" {
		line += " --data-binary " + quote(data)
	}
	return line
}

// quote quotes a text for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
