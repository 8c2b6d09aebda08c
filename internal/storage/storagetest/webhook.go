package storagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const afterAll = "~" // above every event

var webhookStart = time.UnixMilli(1_700_000_000_123).UTC()

// withWebhooks opens a database, unless it is a cluster, with one enabled endpoint for each name of a store.
func withWebhooks(t *testing.T, open Open, stores ...string) (s storage.Storage, hooks []storage.Webhook) {
	s = opened(t, open)
	if s.Stats().Nodes != nil {
		t.SkipNow() // the service refuses endpoints on a cluster
	}
	for i, store := range stores {
		h := storage.Webhook{
			ID: fmt.Sprint("wh_", i), Store: store, Enabled: true, Settings: fmt.Sprintf(`{"n":%d}`, i),
			Created: webhookStart.Add(time.Duration(i) * time.Millisecond),
		}
		if err := s.AddWebhook(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		hooks = append(hooks, h)
	}
	return s, hooks
}

// withEvent is Record with the event of that id.
func withEvent(store string, id int64, name string) plant.Record {
	r := Record(store, id, name, "-")
	r.Event = fmt.Sprint("msg_", id)
	return r
}

// wantDeliveries checks the events of an endpoint that have a status, the newest first.
func wantDeliveries(t *testing.T, s storage.Storage, webhook string, status storage.Status, want ...string) {
	t.Helper()
	found, err := s.Deliveries(t.Context(), storage.DeliveryFilter{
		Webhook: webhook, Status: status, Before: afterAll, Limit: 100,
	})
	var got []string
	for _, d := range found {
		got = append(got, d.Event)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s deliveries of %s: %v, %v, want %v", status, webhook, got, err, want)
	}
}

func changeDelivery(t *testing.T, s storage.Storage, webhook, event string, from, to storage.Status, due time.Time) {
	t.Helper()
	d := storage.Delivery{Webhook: webhook, Event: event, Status: to, Due: due, Log: `["tried"]`}
	if err := s.ChangeDeliveries(t.Context(), []storage.DeliveryChange{{Delivery: d, From: from}}); err != nil {
		t.Fatal(err)
	}
}

func testWebhooks(t *testing.T, open Open) {
	s, hooks := withWebhooks(t, open, "main", token.SandboxPrefix+"a")
	there := opened(t, open)
	want := func(what string, want ...storage.Webhook) {
		t.Helper()
		if got, err := there.Webhooks(t.Context(), ""); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: Webhooks() = %v, %v, want %v", what, got, err, want)
		}
	}
	want("added", hooks...)
	if got, err := s.Webhooks(t.Context(), "main"); err != nil || !slices.Equal(got, hooks[:1]) {
		t.Errorf("Webhooks(main) = %v, %v, want %v", got, err, hooks[:1])
	}

	changed := hooks[0]
	changed.Enabled, changed.Settings = false, `{"n":7}`
	if err := s.ChangeWebhook(t.Context(), hooks[0], changed); err != nil {
		t.Fatal(err)
	}
	want("changed", changed, hooks[1])
	wantError(t, "a second change of the same", s.ChangeWebhook(t.Context(), hooks[0], hooks[0]), storage.ErrNoWebhook)
	wantError(t, "change of none", s.ChangeWebhook(t.Context(), storage.Webhook{ID: "x"}, changed), storage.ErrNoWebhook)

	removed := changed
	removed.Removed = webhookStart.Add(time.Hour)
	if err := s.ChangeWebhook(t.Context(), changed, removed); err != nil {
		t.Fatal(err)
	}
	wantError(t, "change after remove", s.ChangeWebhook(t.Context(), removed, changed), storage.ErrNoWebhook)
	if err := s.ForgetSandbox(t.Context(), hooks[1].Store); err != nil {
		t.Fatal(err)
	}
	if all, err := there.Webhooks(t.Context(), ""); err != nil || all[1].Enabled || all[1].Removed.IsZero() {
		t.Errorf("Webhooks() = %v, %v after the end of the sandbox, want the second to be removed", all, err)
	}
	for after, n := range map[time.Duration]int{0: 2, storage.ForgetAfter: 1} {
		if _, err := s.RemoveDeliveries(t.Context(), removed.Removed.Add(after), 100); err != nil {
			t.Fatal(err)
		}
		if all, err := there.Webhooks(t.Context(), ""); err != nil || after > 0 && len(all) != n {
			t.Errorf("%d endpoints, %v %v after the remove, want %d", len(all), err, after, n)
		}
	}
}

func testDeliveries(t *testing.T, open Open) {
	s, hooks := withWebhooks(t, open, "main", "main", "other", "main")
	disabled := hooks[3]
	disabled.Enabled = false
	if err := s.ChangeWebhook(t.Context(), hooks[3], disabled); err != nil {
		t.Fatal(err)
	}
	Create(t, s, Record("main", 0, "no event", "-"), withEvent("none", 9, "no endpoint"))
	before := time.Now().Truncate(time.Millisecond)
	Create(t, s, withEvent("main", 1, "Fern"), withEvent("other", 2, "Fig"))
	same, taken := withEvent("main", 1, "Fern"), withEvent("main", 1, "other")
	same.Event, taken.Event = "msg_5", "msg_6"
	Create(t, s, withEvent("main", 3, "Iris"), same, withEvent("main", 4, "Reed"), taken)
	for _, hook := range hooks[:2] {
		wantDeliveries(t, s, hook.ID, storage.Waiting, "msg_4", "msg_3", "msg_1")
	}
	wantDeliveries(t, s, hooks[2].ID, storage.Waiting, "msg_2")
	wantDeliveries(t, s, hooks[3].ID, storage.Waiting)
	for event, want := range map[string]string{"msg_1": `{"id":1,"name":"Fern"}`, "msg_2": `{"id":2,"name":"Fig"}`} {
		if body, err := s.Body(t.Context(), event); err != nil || body != want {
			t.Errorf("Body(%s) = %s, %v, want %s", event, body, err, want)
		}
	}
	for _, event := range []string{"msg_5", "msg_6", "msg_9"} {
		_, err := s.Body(t.Context(), event)
		wantError(t, "Body of "+event, err, storage.ErrNoWebhook)
	}

	id := hooks[0].ID
	all, err := s.Deliveries(t.Context(), storage.DeliveryFilter{
		Webhook: id, Status: storage.Waiting, From: "msg_1", Before: "msg_4", Limit: 1,
	})
	if err != nil || len(all) != 1 || all[0].Plant != 3 || all[0].Due.Before(before) || all[0].Due.After(time.Now()) {
		t.Fatalf("Deliveries() = %v, %v, want plant 3, due since %v", all, err, before)
	}
	// A change applies only to the status that it expects. What is due comes in the order of time.
	later := before.Add(time.Hour)
	changeDelivery(t, s, id, "msg_1", storage.Waiting, storage.Waiting, later)
	changeDelivery(t, s, id, "msg_3", storage.Waiting, storage.Replaying, before)
	changeDelivery(t, s, id, "msg_4", storage.Failed, storage.Delivered, before)
	wantDeliveries(t, s, id, storage.Waiting, "msg_4", "msg_1")
	wantDeliveries(t, s, id, storage.Replaying, "msg_3")
	n, bytes, err := s.Backlog(t.Context(), id)
	if want := int64(3 * len(`{"id":1,"name":"Fern"}`)); err != nil || n != 3 || bytes != want {
		t.Errorf("Backlog() = %d, %d, %v with one that is replayed, want 3, %d", n, bytes, err, want)
	}
	wantDeliveries(t, s, hooks[1].ID, storage.Waiting, "msg_4", "msg_3", "msg_1")
	for due, want := range map[time.Time][]string{time.Now(): {"msg_4"}, later: {"msg_4", "msg_1"}} {
		found, err := s.Deliveries(t.Context(), storage.DeliveryFilter{
			Webhook: id, Status: storage.Waiting, Due: due, Limit: 5,
		})
		last := len(want) - 1
		if err != nil || len(found) != len(want) || found[0].Event != want[0] || found[last].Event != want[last] {
			t.Errorf("due at %v: %v, %v, want %v", due, found, err, want)
		}
	}
	found, err := s.Webhooks(t.Context(), "")
	if err != nil || found[0].Oldest != "msg_1" || !found[0].Replaying || found[0].Due.After(time.Now()) ||
		found[1].Replaying || found[3].Oldest != "" || !found[3].Due.IsZero() {
		t.Errorf("Webhooks() = %+v, %v", found, err)
	}
}

func testRemoveDeliveries(t *testing.T, open Open) {
	s, hooks := withWebhooks(t, open, "main", "main")
	for id := range int64(4) {
		Create(t, s, withEvent("main", id, "Fern"))
	}
	now, first, second := time.Now(), hooks[0].ID, hooks[1].ID
	remove := func(what string, want int) {
		t.Helper()
		if n, err := s.RemoveDeliveries(t.Context(), now, 2); err != nil || n != want {
			t.Errorf("%s: RemoveDeliveries() = %d, %v, want %d", what, n, err, want)
		}
	}
	body := func(event string, want error) {
		t.Helper()
		_, err := s.Body(t.Context(), event)
		wantError(t, "Body of "+event, err, want)
	}
	changeDelivery(t, s, first, "msg_0", storage.Waiting, storage.Delivered, now)
	changeDelivery(t, s, first, "msg_1", storage.Waiting, storage.Failed, now)
	changeDelivery(t, s, first, "msg_2", storage.Waiting, storage.Delivered, now.Add(time.Hour))
	remove("delivered and failed", 2)
	remove("not yet due", 0)
	wantDeliveries(t, s, first, storage.Delivered, "msg_2")
	body("msg_0", nil) // the other endpoint has it
	changeDelivery(t, s, second, "msg_0", storage.Waiting, storage.Delivered, now)
	remove("the last of an event", 1)
	body("msg_0", storage.ErrNoWebhook)
	body("msg_1", nil)

	removed := hooks[1]
	removed.Enabled, removed.Removed = false, now
	if err := s.ChangeWebhook(t.Context(), hooks[1], removed); err != nil {
		t.Fatal(err)
	}
	for n := 3; n > 0; {
		removed, err := s.RemoveDeliveries(t.Context(), now, 2)
		if n -= removed; err != nil || removed == 0 {
			t.Fatalf("RemoveDeliveries() = %d, %v, with %d left", removed, err, n)
		}
	}
	body("msg_1", storage.ErrNoWebhook)
	body("msg_3", nil)
	wantDeliveries(t, s, first, storage.Waiting, "msg_3")
}

func testLease(t *testing.T, open Open) {
	s, _ := withWebhooks(t, open)
	there := opened(t, open)
	lease := func(s storage.Storage, owner string, d time.Duration, want bool) {
		t.Helper()
		if held, err := s.Lease(t.Context(), owner, d); err != nil || held != want {
			t.Errorf("Lease(%s, %v) = %v, %v, want %v", owner, d, held, err, want)
		}
	}
	lease(s, "a", time.Minute, true)
	lease(there, "b", time.Minute, false)
	lease(there, "b", 0, false) // releases nothing
	lease(there, "b", time.Minute, false)
	lease(s, "a", time.Minute, true)
	lease(s, "a", 0, false)
	lease(there, "b", time.Millisecond, true)
	time.Sleep(5 * time.Millisecond)
	lease(s, "a", time.Minute, true) // the lease of b has ended
}
