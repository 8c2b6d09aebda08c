package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"plantstore/client"
	"plantstore/internal/webhook"
)

const listenSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of the examples of Standard Webhooks

// pullOf returns the response to a pull with one delivery, signed now with a secret.
func pullOf(id, secret string) string {
	const body = `{"id":1,"name":"Fern \u009b"}`
	now := time.Now()
	text, _ := json.Marshal(map[string]any{"deliveries": []client.Pulled{{ID: id, Body: body, Headers: map[string]string{
		"webhook-id": id, "webhook-timestamp": strconv.FormatInt(now.Unix(), 10),
		"webhook-signature": webhook.Sign([]string{secret}, id, now, []byte(body)),
	}}}})
	return string(text)
}

// endedListen runs listen against a service that has no endpoint after the given responses.
func endedListen(t *testing.T, responses map[string][]string, args ...string) (got result, requests []string) {
	t.Helper()
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		key := strings.TrimPrefix(r.Method+" "+r.URL.Path, "GET ")
		if !strings.HasSuffix(key, "/pull") {
			requests = append(requests, strings.TrimSpace(key+" "+string(body)))
		}
		all := append(responses[key], "404 "+notFoundError)
		responses[key] = all[1:]
		var status int
		code, text, _ := strings.Cut(all[0], " ")
		if fmt.Sscan(code, &status); status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
		io.WriteString(w, text)
	}))
	defer server.Close()
	v := variables{"PLANTSTORE_TOKEN": fixedToken, "PLANTSTORE_URL": server.URL}
	return plantstore(t, v, append([]string{"listen"}, args...)...), requests
}

const (
	added = `201 {"id":"wh_1","kind":"pull","ttl":86400,"secret":"` + listenSecret + `"}`
	named = `{"id":"wh_2","kind":"pull","ttl":604800,"description":"laptop","secret":"` + listenSecret + `"}`

	listenStart   = "Endpoint: wh_1\nSecret: " + listenSecret + "\n\n"
	listenRemoved = "plantstore listen: 40403: no endpoint has this id\n"
)

func TestListen(t *testing.T) {
	add := `POST /webhooks {"description":"plantstore listen","kind":"pull","ttl":86400}`
	const pull, ack, remove = "/webhooks/wh_1/pull", `POST /webhooks/wh_1/ack`, "DELETE /webhooks/wh_1"
	one := []string{"200 " + pullOf("msg_1", listenSecret)}
	got, requests := endedListen(t, map[string][]string{"POST /webhooks": {added}, pull: one, ack: {"204 "}})
	got.want(t, "listen", 3, listenStart+`msg_1  {"id":1,"name":"Fern \u009b"}`+"\n", listenRemoved)
	wantRequests(t, requests, add, ack+` {"ids":["msg_1"]}`, remove)

	got, _ = endedListen(t, map[string][]string{"POST /webhooks": {added}, pull: one, ack: {"204 "}}, "--json")
	lines := strings.Split(got.stdout, "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"secret":"`+listenSecret) || !strings.HasPrefix(lines[1],
		`{"id":"msg_1","headers":{"webhook-id":"msg_1","webhook-signature":"v1,`) {
		t.Errorf("listen --json: %+v", got)
	}
	// After an acknowledgement with an unknown outcome, the delivery may come again. A pull is retried.
	got, requests = endedListen(t, map[string][]string{"POST /webhooks": {added}, ack: {"0", "204 "},
		pull: {"503 ", one[0], one[0]}})
	if strings.Count(got.stdout, "msg_1") != 2 || len(requests) != 4 || !strings.HasPrefix(got.stderr,
		"HTTP status 503: the response is not from a Plant Store: check the base URL; trying again in ") {
		t.Errorf("listen with failures: %+v, %q", got, requests)
	}
	// What is signed with another secret is not acknowledged. It is verified again after growing pauses.
	other := "200 " + pullOf("msg_2", strings.Replace(listenSecret, "M", "N", 1))
	got, requests = endedListen(t, map[string][]string{"POST /webhooks": {added}, pull: {other, other, other},
		ack: {"204 ", "204 ", "204 "}})
	const failed = "msg_2: webhook-signature has no signature of this body with this secret; trying again in "
	got.want(t, "listen with a wrong signature", 3, listenStart,
		failed+"1.0 s\n"+failed+"2.0 s\n"+failed+"4.0 s\n"+listenRemoved)
	retry := func(seconds int) string { return fmt.Sprintf(`%s {"ids":["msg_2"],"retry_in":%d}`, ack, seconds) }
	wantRequests(t, requests, add, retry(1), retry(2), retry(4), remove)

	for args, stderr := range map[string]string{
		"--forward-to localhost:3000": `--forward-to is "localhost:3000": use a URL such as http://localhost:3000/hook`,
		"--forward-to /hook":          `--forward-to is "/hook": use a URL such as http://localhost:3000/hook`,
		"--secret whsec_x":            "--secret is invalid: use one that listen has printed",
	} {
		got, requests = endedListen(t, nil, strings.Fields(args)...)
		got.want(t, args, 2, "", "plantstore listen: "+stderr+"\n")
		wantRequests(t, requests)
	}
}

// The endpoint with a name is found among others and gets a new secret. TestListenForwards of e2e/client has the rest.
func TestListenName(t *testing.T) {
	const others = `{"id":"wh_0","kind":"push","description":"laptop"},{"id":"wh_1","kind":"pull","description":"x"}`
	list, name := "/webhooks", []string{"--name", "laptop"}
	found := "200 [" + others + "," + named + "]"
	rotate := "POST /webhooks/wh_2/rotate"
	got, requests := endedListen(t, map[string][]string{list: {found}, rotate: {"200 " + named}}, name...)
	got.want(t, "listen --name", 3, strings.Replace(listenStart, "wh_1", "wh_2", 1), listenRemoved)
	wantRequests(t, requests, list, rotate)

	disabled := strings.Replace(found, `"laptop","secret"`, `"laptop","disabled":true,"secret"`, 1)
	got, _ = endedListen(t, map[string][]string{list: {disabled}}, name...)
	got.want(t, "a disabled endpoint", 1, "",
		"plantstore listen: endpoint wh_2 is disabled; enable it with plantstore webhook enable\n")
}

func wantRequests(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the requests are %q, want %q", got, want)
	}
}

// What is forwarded has a signature of now. Only a status of 2xx is a success, and no redirect is followed.
func TestListenForwards(t *testing.T) {
	own := webhook.NewSecret()
	var statuses []int
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := webhook.Verify(own, r.Header, body, time.Now()); err != nil || r.RequestURI != "/hook?a=b" ||
			r.ContentLength != int64(len(body)) {
			t.Errorf("%s %s %v: %v", r.Method, r.RequestURI, r.Header, err)
		}
		statuses = append(statuses, []int{302, 404, 201}[len(statuses)%3])
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(statuses[len(statuses)-1])
	}))
	defer receiver.Close()
	old := strings.ReplaceAll(pullOf("msg_1", listenSecret), strconv.FormatInt(time.Now().Unix(), 10)[:5], "10000")
	one, to := "200 "+old, receiver.URL+"/hook?a=b"
	got, requests := endedListen(t, map[string][]string{
		"POST /webhooks": {added}, "/webhooks/wh_1/pull": {one, one, one},
		"POST /webhooks/wh_1/ack": {"204 ", "204 ", "204 "},
	}, "--forward-to", to, "--secret", own)
	got.want(t, "listen --forward-to", 3, strings.Replace(listenStart, listenSecret, own, 1)+
		`msg_1  {"id":1,"name":"Fern \u009b"}`+"\n", "msg_1: "+to+" returned 302 Found; trying again in 1.0 s\n"+
		"msg_1: "+to+" returned 404 Not Found; trying again in 2.0 s\n"+listenRemoved)
	var acks []string
	for _, r := range requests {
		if body, ok := strings.CutPrefix(r, "POST /webhooks/wh_1/ack "); ok {
			acks = append(acks, body)
		}
	}
	wantRequests(t, acks, `{"ids":["msg_1"],"retry_in":1}`, `{"ids":["msg_1"],"retry_in":2}`, `{"ids":["msg_1"]}`)
	if len(statuses) != 3 {
		t.Errorf("the receiver returned %v; the service got %q", statuses, requests)
	}
}

// fullAt fails to write what contains a text.
type fullAt string

func (f fullAt) Write(b []byte) (int, error) {
	if strings.Contains(string(b), string(f)) {
		return 0, errFullDisk
	}
	return len(b), nil
}

// A delivery that can't be printed is not acknowledged.
func TestListenToFullDisk(t *testing.T) {
	for text, want := range map[string]int{"wh_1": 2, "msg_1": 3} { // requests: add, pull and remove
		s := script(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusCreated)
				io.WriteString(w, added[4:])
			} else if r.Method == http.MethodGet {
				io.WriteString(w, pullOf("msg_1", listenSecret))
			} else {
				w.WriteHeader(http.StatusNoContent)
			}
		})
		var stderr bytes.Buffer
		v := variables{"PLANTSTORE_TOKEN": fixedToken}
		code := run(t, v, fullAt(text), &stderr, "listen", "--url", s.URL)
		if n := len(s.requests()); n != want || code != 1 || stderr.String() != "plantstore listen: "+
			errFullDisk.Error()+"\n" {
			t.Errorf("to a disk that is full at %s: %d requests, exit %d, %s", text, n, code, &stderr)
		}
	}
}
