package api

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// No response depends on whether a text is part of the fixed token: a client could find the token piece by piece. A
// client without a valid token gets nothing of its request back, and the log never has the whole token.
func TestResponsesDoNotDependOnSecrets(t *testing.T) {
	t.Parallel()
	secret := randomText(48)
	db := filepath.Join(t.TempDir(), "plants.db")
	cmd := testkit.Serve(db, "--access-log", "all", "--trusted-proxies", "127.0.0.1",
		"--cors-origins", "https://docs.example")
	cmd.Env = append(os.Environ(), "PLANTSTORE_FIXED_TOKEN="+secret)
	s := testkit.Launch(t, cmd)
	s.WaitServing()
	other := testkit.IssueToken(t, db, "--name", "other")
	ops := &testkit.Server{URL: s.Ops}

	compare := func(to *testkit.Server, client string, authorization ...string) {
		for _, length := range []int{8, 12, 20, len(secret)} {
			at := rand.IntN(len(secret) - length + 1)
			part, random := secret[at:at+length], randomText(length)
			for what, request := range requests(authorization...) {
				if length == len(secret) && strings.Contains(what, "bearer") {
					continue // that is the token, in its place
				}
				got, want := to.Raw(t, request(part)), to.Raw(t, request(random))
				if client == "stranger" && (strings.Contains(got, part) || strings.Contains(want, random)) {
					t.Errorf("%s, %s: the response repeats the request: %s", client, what, want)
				}
				if got, want := shape(got, part), shape(want, random); got != want || !strings.HasPrefix(got, "HTTP/1.1 ") {
					t.Errorf("%s, %s, %d characters of the token: the response is\n%s\nand for other text\n%s",
						client, what, length, got, want)
				}
			}
		}
	}
	compare(s, "stranger")
	compare(s, "client with another token", "Authorization: Bearer "+other)
	compare(ops, "stranger")

	if code := s.Stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	log := s.Stderr.String()
	if at := strings.Index(log, secret); at >= 0 || !strings.Contains(log, `"path":"/…"`) {
		t.Errorf("the fixed token, or no path without it, is in the log at %d: %.300s", at, log[max(at-100, 0):])
	}
}

// randomText returns letters that are no digits of any kind of number, so that every text is as wrong as another.
func randomText(length int) string {
	text := make([]byte, length)
	for i := range text {
		text[i] = "ghijkmnpqrstuvwxyz"[rand.IntN(18)]
	}
	return string(text)
}

var (
	date  = regexp.MustCompile(`(?m)^Date: .*\r$`)
	newID = regexp.MustCompile(`(?m)^X-Request-Id: [0-9a-v]{13}\r$`)
)

// shape returns what a response tells, without what a client knows before.
func shape(response, sent string) string {
	response = newID.ReplaceAllString(date.ReplaceAllString(response, "Date"), "X-Request-Id: NEW")
	for length := len(sent); length >= 8; length-- { // messages have excerpts
		response = strings.ReplaceAll(response, sent[:length], fmt.Sprintf("<%d characters>", length))
	}
	return response
}

// requests returns requests with a text in every place, by what they are.
func requests(headers ...string) map[string]func(text string) string {
	all := map[string]func(string) string{}
	add := func(what, format string, more ...string) {
		all[what] = func(text string) string {
			lines := append([]string{fmt.Sprintf(format, text), "Host: x", "Connection: close", "Content-Length: 0"}, headers...)
			for _, header := range more {
				lines = append(lines, strings.ReplaceAll(header, "TEXT", text))
			}
			return strings.Join(lines, "\r\n") + "\r\n\r\n"
		}
	}
	for _, path := range []string{
		"/%s", "/xx%syy", "//%s", "/nowhere/%s", "/plants/%s", "/plants/1/%s", "/docs/%s", "/console/%s", "/healthz/%s",
		"/plants?%s", "/plants?%s=1", "/plants?limit=%s", "/plants?after=%s", "/plants?tag=%s", "/plants?q=%s",
		"/plants?access_token=%s", "/plants?tag=1&tag=%s", "/plants?%%zz=%s", "/plants/1?%s", "/openapi.json?%s",
		"/openapi.yaml?x=%s", "/?%s", "/docs?%s", "/healthz?%s", "/readyz?%s", "/debug/pprof/%s",
		"/debug/pprof/goroutine?seconds=%s", "*%s", "http://%s/plants", "%s",
	} {
		add("GET "+path, "GET "+path+" HTTP/1.1")
	}
	add("percent-encoded path", "GET /%%67%s HTTP/1.1")
	for _, path := range []string{"/plants", "/plants/1", "/nowhere", "/", "/healthz", "/livez"} {
		add("method of "+path, "%s "+path+" HTTP/1.1")
	}
	add("protocol", "GET / HTTP/1.1%s")
	add("line", "%s")
	for _, name := range []string{
		"X-Request-Id", "Prefer", "Accept", "Accept-Encoding", "Origin", "If-Match", "If-None-Match", "Content-Type",
		"Content-Encoding", "Expect", "User-Agent", "Referer", "Cookie", "X-Forwarded-For", "Forwarded", "Range", "Host",
		"Access-Control-Request-Method", "Access-Control-Request-Headers", "Transfer-Encoding", "traceparent", "Upgrade",
	} {
		for _, to := range []string{"GET /", "PUT /plants/1", "OPTIONS /plants"} {
			add(to+" with "+name, to+" HTTP/1.1%.0s", name+": TEXT", "Origin: https://docs.example")
		}
		add("nowhere with "+name, "GET /nowhere HTTP/1.1%.0s", name+`: x, "TEXT`)
	}
	add("header name", "GET /plants HTTP/1.1%.0s", "TEXT: x")
	for _, scheme := range []string{"Basic ", "", "Bearer x ", "Bearer x"} {
		add("credential "+scheme, "GET /plants HTTP/1.1%.0s", "Authorization: "+scheme+"TEXT")
		add("credential of nowhere "+scheme, "GET /nowhere HTTP/1.1%.0s", "Authorization: "+scheme+"TEXT")
	}
	add("bearer", "GET /plants HTTP/1.1%.0s", "Authorization: Bearer TEXT")
	add("bearer of nowhere", "GET /nowhere HTTP/1.1%.0s", "Authorization: Bearer TEXT")
	return all
}
