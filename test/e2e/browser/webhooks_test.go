package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"plantstore/test/testkit"
)

// receive starts a receiver of webhooks, which responds with the status. After 503 it asks for a pause that no test
// waits for.
func receive(t *testing.T, status *atomic.Int32) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// addWebhook adds an endpoint and returns its id.
func (s *service) addWebhook(t *testing.T, body string) string {
	t.Helper()
	a, err := s.Send("POST", "/webhooks", body)
	var endpoint struct{ ID string }
	if err != nil || a.Status != http.StatusCreated || json.Unmarshal([]byte(a.Body), &endpoint) != nil {
		t.Fatalf("POST /webhooks %s = %d %s, %v", body, a.Status, a.Body, err)
	}
	return endpoint.ID
}

// waitTried waits until a delivery to an endpoint with this status has been tried.
func (s *service) waitTried(t *testing.T, id, status string) {
	t.Helper()
	testkit.WaitFor(t, "a delivery that is "+status, func() bool {
		a, err := s.Send("GET", "/webhooks/"+id+"/deliveries?limit=1&status="+status, "")
		var page []struct{ Tries []struct{} }
		return err == nil && json.Unmarshal([]byte(a.Body), &page) == nil && len(page) == 1 && len(page[0].Tries) > 0
	})
}

// The tab lists the endpoints and deliveries of the store. Replay sends a delivery again, and shows its result.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	s := serve(t, "--webhook-targets", "private")
	var status atomic.Int32
	status.Store(503)
	address := receive(t, &status)
	pushed := s.addWebhook(t, fmt.Sprintf(`{"url":%q,"description":"The shop"}`, address))
	p := newPage(t, s.front)
	p.open(s.Token)
	p.click("#tab-webhooks")
	p.wantText("#endpoints .link bdi", address)
	p.wantText("#endpoints .w-state", "enabled")
	p.wantVisible("#no-deliveries") // It is the only endpoint, so it is chosen.
	s.create(t, `{"id":9007199254740993,"name":"Fern"}`)
	s.waitTried(t, pushed, "waiting")
	p.click("#refresh-webhooks")
	p.wantText(".d-plant a", "9007199254740993")
	p.waitFor("the failed try", `document.querySelector('.d-try').textContent.startsWith('HTTP 503, ')`)
	status.Store(200)
	p.click(".d-do button", "Replay")
	p.wantText(".d-status", "delivered")
	p.click("#deliveries .disclose")
	p.waitFor("both tries", `[...document.querySelectorAll('.tries li')].map((e) => e.textContent)
		.map((text, i) => [/: HTTP 503, [\d,]+ ms$/, /: HTTP 200, [\d,]+ ms, replay$/][i].test(text)).join() === 'true,true'`)

	status.Store(410) // The delivery has failed, and the endpoint is disabled.
	s.create(t, `{"id":2,"name":"Ivy"}`)
	s.waitTried(t, pushed, "failed")
	s.addWebhook(t, `{"kind":"pull","description":"`+"\u202e"+`"}`)
	p.click("#refresh-webhooks")
	p.wantText("#endpoints tr:last-child .w-description", "U+202E")
	p.waitFor("the reason",
		`/^disabled since .*: the receiver returned 410 Gone$/.test(document.querySelector('.w-state').textContent)`)
	p.click("#endpoints .link bdi", address)
	p.choose("#delivery-status", "failed")
	p.waitFor("the failed delivery alone",
		`[...document.querySelectorAll('.d-plant')].map((e) => e.textContent).join() === '2'`)
	status.Store(200)
	p.click("#replay-failed")
	p.wantVisible("#status span", "Failed deliveries that are replayed: 1.")
	p.wantVisible("#no-deliveries")
	p.choose("#delivery-status", "")
	p.waitFor("two that are delivered", `[...document.querySelectorAll('.d-status')].map((e) => e.textContent).join() ===
		'delivered,delivered'`)
	p.click(".d-plant a", "2") // a link to the plant
	p.wantRow("2", "Ivy", "")
	p.do(chromedp.NavigateBack())
	p.wantVisible("#deliveries")
	s.change(t, "DELETE", "/webhooks/"+pushed, "")
	p.click(".d-do button", "Replay")
	p.wantVisible("#deliveries-error bdi", "This endpoint or delivery was removed. Refresh the list.")
	p.click("#refresh-webhooks")
	p.wantGone("#endpoints tbody tr:nth-child(2)")
}

// Without the scope, or where the service has no webhooks, the page has only the plants.
func TestWebhooksNotOffered(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`)
	requests := make(chan string, 100)
	s.intercept(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		if r.URL.Path != "/webhooks" {
			product.ServeHTTP(w, r)
			return
		}
		requests <- r.URL.Path
		w.WriteHeader(http.StatusNotImplemented)
		fmt.Fprint(w, `{"error":50102,"message":"webhooks need SQLite or PostgreSQL"}`)
	})
	p := newPage(t, s.front)
	p.goTo("/#tab=webhooks")
	p.enter(s.issue(t, "--name", "plants"))
	p.wantRow("1", "Aloe", "")
	p.wantGone(".tabs")
	p.signOut()
	if len(requests) > 0 {
		t.Error("the page requests webhooks without the scope")
	}
	p.enter(s.Token)
	<-requests
	p.wantGone(".tabs")
	p.wantRow("1", "Aloe", "")
}
