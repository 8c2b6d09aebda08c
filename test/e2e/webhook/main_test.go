// Package webhook tests that each new plant, and nothing else, is delivered to receivers, whatever is killed.
package webhook

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// start starts a service that delivers to receivers on this machine.
func start(t *testing.T, db string, args ...string) *testkit.Server {
	t.Helper()
	return testkit.StartFixed(t, db, append(args, "--webhook-targets", "private")...)
}

// endpoint is an endpoint in a response.
type endpoint struct {
	ID, Kind, Secret string
	Disabled         bool
	Reason           string `json:"disabled_reason"`
}

// delivery is a delivery in a response.
type delivery struct {
	ID     string
	Plant  int64
	Status string
	Next   time.Time
	Tries  []struct{ Status int }
}

// call sends a request, again after 429, checks the status of the response, and decodes its body.
func call[T any](t testing.TB, to testkit.Target, method, path, body string, status int) (decoded T) {
	t.Helper()
	a, err := to.Send(method, path, body)
	for ; err == nil && a.Status == 429; a, err = to.Send(method, path, body) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil || a.Status != status {
		t.Fatalf("%s %s %.100s: %d %s %v, want %d", method, path, body, a.Status, a.Body, err, status)
	}
	if a.Body != "" {
		if err := json.Unmarshal([]byte(a.Body), &decoded); err != nil {
			t.Fatalf("%s %s: %s: %v", method, path, a.Body, err)
		}
	}
	return decoded
}

// add adds an endpoint for a receiver.
func add(t testing.TB, to testkit.Target, r *receiver) endpoint {
	t.Helper()
	e := call[endpoint](t, to, "POST", "/webhooks", fmt.Sprintf(`{"url":"http://%s/hook"}`, r.address), 201)
	r.setSecret(t, e.Secret)
	return e
}

// create creates a plant. Its name follows from the id.
func create(t testing.TB, to testkit.Target, id int64) {
	t.Helper()
	body := plant(id)
	call[any](t, to, "POST", "/plants", body, 200)
}

func plant(id int64) string { return fmt.Sprintf(`{"id":%d,"name":"plant %[1]d"}`, id) }

// deliveries returns all deliveries of an endpoint.
func deliveries(t testing.TB, to testkit.Target, e endpoint) (all []delivery) {
	t.Helper()
	for path := "/webhooks/" + e.ID + "/deliveries"; ; {
		page := call[[]delivery](t, to, "GET", path, "", 200)
		if all = append(all, page...); len(page) < 100 {
			return all
		}
		path = "/webhooks/" + e.ID + "/deliveries?before=" + page[len(page)-1].ID
	}
}

// plantsOf returns the plants of all deliveries of an endpoint, sorted.
func plantsOf(t testing.TB, to testkit.Target, e endpoint) (ids []int64) {
	t.Helper()
	for _, d := range deliveries(t, to, e) {
		ids = append(ids, d.Plant)
	}
	slices.Sort(ids)
	return ids
}

// rows returns the numbers of rows of a store, such as "1 endpoints, 2 events, 2 deliveries".
func rows(t testing.TB, db, store string) string {
	t.Helper()
	return testkit.Query(t, db, strings.ReplaceAll(`SELECT
		(SELECT count(*) FROM webhooks WHERE store = 'X') || ' endpoints, ' ||
		(SELECT count(*) FROM events WHERE store = 'X') || ' events, ' ||
		(SELECT count(*) FROM deliveries WHERE event IN (SELECT id FROM events WHERE store = 'X')
			OR webhook IN (SELECT id FROM webhooks WHERE store = 'X')) || ' deliveries'`, "X", store))[0][0]
}
