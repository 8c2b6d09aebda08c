package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"plantstore/client"
)

const (
	pushJSON = `{"id":"wh_1","kind":"push","url":"https://x.example/h","description":"the shop",` +
		`"created":"2026-11-19T00:00:00.123Z","disabled":false}`
	pullJSON = `{"id":"wh_2","kind":"pull","ttl":86400,"description":"","created":"2026-11-19T00:00:00Z",` +
		`"disabled":true,"disabled_at":"2026-11-19T01:00:00Z","disabled_reason":"copied"}`
	secretJSON = `{"id":"wh_1","kind":"push","url":"https://x.example/h","description":"",` +
		`"created":"2026-11-19T00:00:00Z","disabled":false,"secret":"whsec_eA=="}`
	deliveriesJSON = `[{"id":"msg_3","plant":-7,"status":"waiting","created":"2026-11-19T00:00:00Z",` +
		`"next":"2026-11-19T00:05:00Z","tries":[{"time":"2026-11-19T00:00:00Z","ms":3,"error":"dns"},` +
		`{"time":"2026-11-19T00:00:05Z","status":500,"ms":12,"error":"status"}]},` +
		`{"id":"msg_2","plant":2,"status":"failed","created":"2026-11-19T00:00:00Z","tries":[` +
		`{"time":"2026-11-19T00:00:00Z","ms":9,"error":"refused","replay":true}]},` +
		`{"id":"msg_0","plant":0,"status":"delivered","created":"2026-11-19T00:00:00Z","tries":[` +
		`{"time":"2026-11-19T00:00:00Z","status":204,"ms":7},{"time":"2026-11-19T00:00:00Z","ms":0}]},` +
		`{"id":"msg_1","plant":1,"status":"waiting","created":"2026-11-19T00:00:00Z","tries":[]}]`
)

const (
	webhookTitle  = "ID    TARGET               DESCRIPTION  CREATED              DISABLED"
	pushRow       = "wh_1  https://x.example/h  the shop     2026-11-19 00:00:00  -\n"
	pullRow       = "wh_2  pull                 \"\"           2026-11-19 00:00:00  2026-11-19 01:00:00 copied\n"
	secretTable   = "ID    TARGET               DESCRIPTION  CREATED              DISABLED  SECRET\n" + secretRow
	secretRow     = "wh_1  https://x.example/h  \"\"           2026-11-19 00:00:00  -         whsec_eA==\n"
	notFoundError = `{"error":40403,"message":"no endpoint has this id"}`
)

// webhookTests have the requests of a command, and the responses to them.
var webhookTests = []struct {
	args      string
	requests  []string
	responses []string // each a status and a body
	stdout    string
	stderr    string
	code      int
}{
	{"add https://x.example/h", []string{`POST /webhooks {"url":"https://x.example/h"}`}, []string{"201 " + secretJSON},
		secretTable, "", 0},
	{"add u --description d --json", []string{`POST /webhooks {"description":"d","url":"u"}`},
		[]string{"201 " + secretJSON}, "{\n  \"id\": \"wh_1\",", "", 0},
	{"add u", []string{`POST /webhooks {"url":"u"}`}, []string{"201 x"}, "", "the outcome is unknown, the change may " +
		"have been made: the response is not from a Plant Store: check the base URL; check with webhook list before " +
		"running it again\n", 1},
	{"add", nil, nil, "", "expected arguments: URL; got: []; see plantstore webhook add --help\n", 2},
	{"list", []string{"GET /webhooks "}, []string{"200 [" + pushJSON + "," + pullJSON + "]"},
		webhookTitle + "\n" + pushRow + pullRow, "", 0},
	{"list --json", []string{"GET /webhooks "}, []string{"200 []"}, "[]\n", "", 0},
	{"list", []string{"GET /webhooks "}, []string{`403 {"error":40301,"message":"no"}`}, "", "40301: no\n", 6},
	{"remove wh_1", []string{"DELETE /webhooks/wh_1 "}, []string{"204 "}, "", "", 0},
	{"rm wh_3", []string{"DELETE /webhooks/wh_3 "}, []string{"404 " + notFoundError}, "",
		"40403: no endpoint has this id\n", 3},
	{"rotate wh_1", []string{"POST /webhooks/wh_1/rotate "}, []string{"200 " + secretJSON}, secretTable, "", 0},
	{"disable wh_1", []string{"GET /webhooks/wh_1 ",
		`PUT /webhooks/wh_1 {"description":"the shop","disabled":true,"url":"https://x.example/h"}`},
		[]string{"200 " + pushJSON, "200 " + pullJSON}, "ID    TARGET  DESCR", "", 0},
	{"enable wh_2", []string{"GET /webhooks/wh_2 ", `PUT /webhooks/wh_2 {"disabled":false}`},
		[]string{"200 " + pullJSON, "200 " + pullJSON}, "ID    TARGET  DESCR", "", 0},
	{"enable wh_3", []string{"GET /webhooks/wh_3 "}, []string{"404 " + notFoundError}, "",
		"40403: no endpoint has this id\n", 3},
	{"deliveries wh_1", []string{"GET /webhooks/wh_1/deliveries?limit=100 "}, []string{"200 " + deliveriesJSON},
		"ID     PLANT  STATUS     CREATED              TRIES  LAST TRY           NEXT TRY\n" +
			"msg_3  -7     waiting    2026-11-19 00:00:00  2      12 ms, 500 status  2026-11-19 00:05:00\n" +
			"msg_2  2      failed     2026-11-19 00:00:00  1      9 ms, refused      -\n" +
			"msg_0  0      delivered  2026-11-19 00:00:00  2      0 ms               -\n" +
			"msg_1  1      waiting    2026-11-19 00:00:00  0      -                  -\n", "", 0},
	{"deliveries wh_1 --limit 4 --status failed --json", []string{
		"GET /webhooks/wh_1/deliveries?limit=4&status=failed "}, []string{"200 " + deliveriesJSON},
		"[\n  {\n    \"id\": \"msg_3\",", "", 0},
	{"deliveries wh_1 --limit 0", nil, nil, "", "--limit is 0: use 1 or more\n", 2},
	{"replay wh_1 msg_2 msg_1", []string{"POST /webhooks/wh_1/deliveries/msg_2/replay ",
		"POST /webhooks/wh_1/deliveries/msg_1/replay "}, []string{"202 " + deliveryJSON, "202 " + deliveryJSON},
		"ID     PLANT  STATUS     CREATED              TRIES  LAST TRY  NEXT TRY\n" +
			strings.Repeat("msg_1  1      replaying  2026-11-19 00:00:00  0      -         -\n", 2), "", 0},
	{"replay wh_1 msg_1 msg_9", []string{"POST /webhooks/wh_1/deliveries/msg_1/replay ",
		"POST /webhooks/wh_1/deliveries/msg_9/replay "}, []string{"202 " + deliveryJSON, "404 " + notFoundError},
		"", "40403: no endpoint has this id; stopped at msg_9\n", 3},
	{"replay wh_1 --since 2026-01-01", []string{`POST /webhooks/wh_1/replay {"since":"2026-01-01T00:00:00Z"}`},
		[]string{`202 {"replaying":3}`}, "REPLAYING\n3\n", "", 0},
	{"replay wh_1 --since 2026-01-01T01:00:00+01:00 --json", []string{
		`POST /webhooks/wh_1/replay {"since":"2026-01-01T00:00:00Z"}`}, []string{`202 {"replaying":3}`},
		"{\n  \"replaying\": 3\n}\n", "", 0},
	{"replay wh_1 --since 2026-01-01", []string{`POST /webhooks/wh_1/replay {"since":"2026-01-01T00:00:00Z"}`},
		[]string{`409 {"error":40901,"message":"wait"}`}, "", "40901: wait\n", 4},
	{"replay wh_1", nil, nil, "", "use either ids of deliveries or --since\n", 2},
	{"replay wh_1 msg_1 --since 24h", nil, nil, "", "use either ids of deliveries or --since\n", 2},
	{"replay wh_1 --since 9999-01-01", nil, nil, "",
		`--since is "9999-01-01": use a past date such as 2026-01-01, or an age such as 30d` + "\n", 2},
}

const deliveryJSON = `{"id":"msg_1","plant":1,"status":"replaying","created":"2026-11-19T00:00:00Z","tries":[]}`

func TestWebhook(t *testing.T) {
	for _, test := range webhookTests {
		var requests []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			requests = append(requests, r.Method+" "+r.RequestURI+" "+string(body))
			var status int
			code, text, _ := strings.Cut(test.responses[min(len(requests), len(test.responses))-1], " ")
			fmt.Sscan(code, &status)
			w.WriteHeader(status)
			io.WriteString(w, text)
		}))
		v := variables{"PLANTSTORE_TOKEN": fixedToken, "PLANTSTORE_URL": server.URL}
		got := plantstore(t, v, append([]string{"webhook"}, strings.Fields(test.args)...)...)
		_, stderr, _ := strings.Cut(got.stderr, ": ")
		if got.code != test.code || !matches(got.stdout, test.stdout) || stderr != test.stderr ||
			!slices.Equal(requests, test.requests) {
			t.Errorf("webhook %s: exit %d, requests %q\n%s%s\nwant exit %d, requests %q\n%s%s", test.args, got.code,
				requests, got.stdout, got.stderr, test.code, test.requests, test.stdout, test.stderr)
		}
		server.Close()
	}
}

// An age is relative to now.
func TestWebhookReplayAge(t *testing.T) {
	var since struct{ Since time.Time }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		json.UnmarshalRead(r.Body, &since, json.MatchCaseInsensitiveNames(true))
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, `{"replaying":0}`)
	}))
	defer server.Close()
	plantstore(t, nil, "webhook", "replay", "wh_1", "--since", "24h", "--url", server.URL, "--token", "x")
	if age := time.Since(since.Since); age < 24*time.Hour || age > 25*time.Hour {
		t.Errorf("--since 24h sent %v", since.Since)
	}
}

// Deliveries are requested in pages of at most 100.
func TestWebhookDeliveryPages(t *testing.T) {
	for limit, want := range map[string]string{
		"100": "[limit=100]", "99": "[limit=99]", "150": "[limit=100 before=msg_150&limit=50]",
		"999": "[limit=100 before=msg_150&limit=100 before=msg_50&limit=100]", // of 250
		"250": "[limit=100 before=msg_150&limit=100 before=msg_50&limit=50]",
	} {
		var queries []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			queries = append(queries, r.URL.RawQuery)
			before, n := 250, 0
			fmt.Sscanf(r.URL.Query().Get("before"), "msg_%d", &before)
			fmt.Sscan(r.URL.Query().Get("limit"), &n)
			page := []client.Delivery{}
			for ; n > 0 && before > 0; n-- {
				before--
				page = append(page, client.Delivery{ID: fmt.Sprintf("msg_%d", before)})
			}
			json.MarshalWrite(w, page)
		}))
		got := plantstore(t, nil, "webhook", "deliveries", "wh_1", "--limit", limit, "--url", server.URL, "--token", "x")
		n, _ := strconv.Atoi(limit)
		if fmt.Sprint(queries) != want || strings.Count(got.stdout, "\n") != 1+min(n, 250) {
			t.Errorf("--limit %s: %v, %+v, want %s", limit, queries, got, want)
		}
		server.Close()
	}
}
