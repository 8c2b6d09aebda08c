package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"plantstore/internal/testkit"
)

// No 8 consecutive characters of a fixed token appear in the log or in a response, wherever in a request it was sent.
func TestFixedTokenIsSecret(t *testing.T) {
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			s := testkit.StartFixed(t, e.Database(t), "--access-log", "all", "--trusted-proxies", "127.0.0.1")
			responses := ""
			for _, request := range misplaced(s.Token) {
				response := s.Raw(t, request)
				if !strings.HasPrefix(response, "HTTP/1.1 ") {
					t.Errorf("%q: no response, %q", request, response)
				}
				responses += response
			}
			s.WaitLogged(t, "a-last-request")
			if code := s.Stop(); code != 0 {
				t.Errorf("exit %d", code)
			}
			for i := range len(s.Token) - 7 {
				part := s.Token[i : i+8]
				wantAbsent(t, "the log", s.Stderr.String(), part)
				wantAbsent(t, "a response", responses, part)
			}
		})
	}
}

// wantAbsent fails the test if text contains secret, percent-encoded once, several times or not at all.
func wantAbsent(t *testing.T, what, text, secret string) {
	t.Helper()
	text = strings.ReplaceAll(strings.ToLower(text), "%25", "%")
	for _, form := range []string{secret, percentEncode(secret)} {
		if at := strings.Index(text, form); at >= 0 {
			t.Errorf("%q is in %s: %s", form, what, text[max(0, at-200):min(len(text), at+100)])
		}
	}
}

func percentEncode(text string) (encoded string) {
	for _, c := range []byte(text) {
		encoded += fmt.Sprintf("%%%02x", c)
	}
	return encoded
}

// misplaced returns requests with the token in every place where it does not belong.
func misplaced(token string) (requests []string) {
	encoded := percentEncode(token)
	send := func(method, target, body string, headers ...string) {
		head := append([]string{method + " " + target + " HTTP/1.1", "Host: x", "Connection: close",
			fmt.Sprint("Content-Length: ", len(body))}, headers...)
		requests = append(requests, strings.Join(head, "\r\n")+"\r\n\r\n"+body)
	}
	valid := []string{"Authorization: Bearer " + token, testkit.ContentJSON}
	for _, text := range []string{token, encoded, strings.ReplaceAll(encoded, "%", "%25"), strings.Repeat("x", 85) + token,
		token[3:] + "x", "x/" + token + "/y"} {
		send("GET", "/"+text, "")
		send("GET", "//"+text, "")
		for _, method := range []string{"GET", "PUT", "DELETE", "PATCH"} {
			send(method, "/plants/"+text, "", valid...)
		}
		for _, parameter := range []string{"limit", "after", "access_token", "limit=1&limit", "%zz"} {
			send("GET", "/plants?"+parameter+"="+text, "", valid...)
		}
	}
	for _, method := range []string{token, strings.ToUpper(token[:1]) + token[1:], "XXXXXXXXXXXX" + token} {
		send(method, "/plants", "")
	}
	for _, name := range []string{"X-Request-Id", "Content-Encoding", "If-Match", "If-None-Match", "Prefer", "Origin",
		"Expect", "User-Agent", "Referer", "X-Forwarded-For", "Forwarded", "Cookie", token} {
		for _, value := range []string{token, `"` + token, "x," + token + ",y"} {
			send("PUT", "/plants/1", `{"name":"x"}`, append(slices.Clone(valid), name+": "+value)...)
		}
	}
	for _, header := range []string{"Authorization: Basic ", "Authorization: ", "Authorization: Bearer x",
		"Content-Type: ", "Transfer-Encoding: "} {
		send("POST", "/plants", "", header+token)
		send("POST", "/plants", "", valid[0], header+token)
	}
	for _, body := range []string{token, `"` + token + `"`, `{"id":"` + token + `"}`, `{"id":1,"name":` + token,
		`{"id":1 ` + token, `{"` + token + `":1,"` + token + `":2}`, `{"id":1,"name":"x"}` + token,
		`{"id":"` + strings.Repeat("x", 20) + token + `"}`, `{"id":1,"name":"` + token + `\u0000"}`} {
		send("POST", "/plants", body, valid...)
		send("PUT", "/plants/1", body, valid...)
	}
	requests = append(requests, token+"\r\n\r\n", "GET /"+token+" HTTP/9.9\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: "+token+"\r\nConnection: close\r\n\r\n", "GET "+token+" HTTP/1.1\r\nHost: x\r\n\r\n")
	send("GET", "/nowhere", "", "X-Request-Id: a-last-request")
	return requests
}
