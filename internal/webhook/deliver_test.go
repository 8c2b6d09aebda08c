package webhook

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

const toA = `"url":"https://a.example/"`

// The request is the webhook of the public sample, signed. The delivery changes after the response.
func TestRequest(t *testing.T) {
	inBubble(t, takes(3*time.Second), func(t *testing.T, s *service) {
		path, e := s.add("", `"url":"https://a.example/hook?x=1"`)
		s.create("main", 7, 7)
		s.create("other", 8, 8)
		time.Sleep(2 * time.Second)
		if d := s.list(path, "")[0]; d.Status != storage.Waiting || len(d.Tries) != 0 || s.Oldest() == 0 {
			t.Errorf("before the response: %+v, the oldest waits for %v", d, s.Oldest())
		}
		time.Sleep(3 * time.Second)
		all, d := s.requests(""), s.list(path, "")
		if len(all) != 1 || len(d) != 1 {
			t.Fatalf("%d requests and deliveries %+v, want 1", len(all), d)
		}
		r := all[0]
		const body = `{"id":7,"name":"Fern"}`
		if r.Method != "POST" || r.URL.String() != "https://a.example/hook?x=1" || r.body != body || len(r.Header) != 6 ||
			r.ContentLength != int64(len(body)) || r.Header.Get("Content-Type") != "application/json" ||
			r.Header.Get("Webhook-Topic") != "plant.created" || r.Header.Get("User-Agent") != "PlantStore/test" {
			t.Errorf("%s %s %v %s", r.Method, r.URL, r.Header, r.body)
		}
		if err := Verify(e.Secret, r.Header, []byte(r.body), time.Now()); err != nil {
			t.Error(err)
		}
		if d := d[0]; d.ID != r.id || d.Plant != 7 || d.Status != storage.Delivered || len(d.Tries) != 1 ||
			!d.Next.IsZero() || d.Tries[0].Status != 200 || d.Tries[0].Millis != 3000 || s.tried("delivered") != 1 ||
			s.Oldest() != 0 {
			t.Errorf("%+v, the oldest waits for %v", d, s.Oldest())
		}
	})
}

// A delivery is tried ten times with the documented pauses, also if the service restarts between tries.
func TestSchedule(t *testing.T) {
	inBubble(t, always(500), func(t *testing.T, s *service) {
		path, _ := s.add("", toA)
		s.create("main", 1, 1)
		for n, pause := range []time.Duration{
			5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
			20 * time.Hour, 24 * time.Hour,
		} {
			time.Sleep(2 * time.Second)
			d := s.list(path, "")[0]
			if len(d.Tries) != n+1 || d.Status != storage.Waiting || d.Tries[n].Error != "status" || d.Tries[n].Status != 500 {
				t.Fatalf("after try %d: %+v", n+1, d)
			}
			got := d.Next.Sub(d.Tries[n].Time)
			if ratio := float64(got) / float64(pause); ratio < 0.899 || ratio > 1.101 { // milliseconds are cut off
				t.Errorf("pause %d is %v, want %v ± 10 %%", n+1, got, pause)
			}
			s.restartAt(d.Next.Add(-time.Second))
			time.Sleep(900 * time.Millisecond)
			if got := len(s.requests("")); got != n+1 {
				t.Fatalf("%d requests before the end of pause %d", got, n+1)
			}
		}
		time.Sleep(2 * time.Second)
		d := s.list(path, "")[0]
		if len(d.Tries) != 10 || d.Status != storage.Failed || !d.Next.IsZero() || s.tried("status") != 10 {
			t.Errorf("after ten tries: %+v, %d of them counted", d, s.tried("status"))
		}
		s.restartAt(time.Now().Add(7*24*time.Hour - 4*time.Second))
		time.Sleep(time.Second)
		if got := len(s.list(path, "")); got != 1 || len(s.requests("")) != 10 {
			t.Errorf("%d deliveries and %d requests after almost 7 days", got, len(s.requests("")))
		}
		time.Sleep(5 * time.Second)
		if got := len(s.list(path, "")); got != 0 {
			t.Errorf("%d deliveries after 7 days", got)
		}
	})
}

// The jitter covers its whole range. Retry-After makes a pause longer, never shorter.
func TestPauses(t *testing.T) {
	now, low, high := time.Now(), 2.0, 0.0
	due := func(retryAfter time.Duration) time.Duration {
		d := storage.Delivery{Status: storage.Waiting}
		return after(endpoint{}, d, try{Error: "status", retryAfter: retryAfter}, now).Due.Sub(now)
	}
	for range 1000 {
		ratio := float64(due(0)) / float64(5*time.Second)
		low, high = min(low, ratio), max(high, ratio)
	}
	if low < 0.9 || low > 0.92 || high > 1.1 || high < 1.08 || due(time.Second) < 4*time.Second ||
		due(time.Hour) != time.Hour {
		t.Errorf("pauses from %.3f to %.3f of 5 s, want 0.9 to 1.1; %v and %v", low, high, due(time.Second), due(time.Hour))
	}
	const day = 24 * time.Hour
	in := func(d time.Duration) string { return now.Add(d).UTC().Format(http.TimeFormat) }
	for value, want := range map[string]time.Duration{
		"60": time.Minute, "999999": day, in(time.Hour): time.Hour, in(48 * time.Hour): day, in(-time.Hour): 0, "-60": 0,
		"": 0, "soon": 0, "99999999999999999999": day,
	} {
		for status := 200; status < 600; status++ {
			got := retryAfter(&http.Response{StatusCode: status, Header: http.Header{"Retry-After": {value}}}, now)
			honoured := status == 429 || status == 502 || status == 503 || status == 504
			if honoured && (got > want || got <= want-time.Second) || !honoured && got != 0 {
				t.Errorf("%d with Retry-After %q: %v, want %v", status, value, got, want)
			}
		}
	}
}

// 410 disables the endpoint. Then it gets only replays, until it is enabled: it gets waiting deliveries.
func TestDisabled(t *testing.T) {
	code := 410
	inBubble(t, func(request) (*http.Response, error) { return status(code) }, func(t *testing.T, s *service) {
		path, _ := s.add("", toA)
		s.stop()
		s.create("main", 1, 5)
		s.restartAt(time.Now().Add(time.Second))
		time.Sleep(time.Hour)
		e := want[shown](s, 200, "GET", path, "")
		if !e.Disabled || !strings.Contains(e.Reason, "410") || e.DisabledAt.IsZero() {
			t.Errorf("the endpoint: %+v", e)
		}
		s.create("main", 6, 6)
		failed, waiting := s.list(path, "status=failed"), s.list(path, "status=waiting")
		if len(failed) != 1 || len(waiting) != 4 || len(s.requests("")) != 1 || s.Oldest() != 0 {
			t.Fatalf("%d failed and %d waiting deliveries, %d requests", len(failed), len(waiting), len(s.requests("")))
		}
		code = 200
		s.replay(path, waiting[0].ID, 202)
		time.Sleep(3 * time.Second)
		if all := s.requests(""); len(all) != 2 || all[1].id != waiting[0].ID {
			t.Errorf("%d requests after a replay, want 2", len(all))
		}
		e = want[shown](s, 200, "PUT", path, `{"url":"https://b.example/","description":"d"}`)
		if e.Disabled || e.Reason != "" || !e.DisabledAt.IsZero() || e.Description != "d" {
			t.Errorf("the endpoint: %+v", e)
		}
		time.Sleep(10 * time.Second)
		if got := len(s.requests("b.example")); got != 3 || len(s.list(path, "status=delivered")) != 4 {
			t.Errorf("%d requests to the new URL, want 3: %+v", got, s.list(path, ""))
		}
		if e = want[shown](s, 200, "PUT", path, `{`+toA+`,"disabled":true}`); e.Reason != "a client has disabled it" {
			t.Errorf("the endpoint: %+v", e)
		}
		want[none](s, 204, "DELETE", path, "")
		want[none](s, 40403, "GET", path, "")
		time.Sleep(2 * storage.ForgetAfter)
		if rows, err := s.db.Webhooks(t.Context(), ""); len(rows) != 0 || err != nil {
			t.Errorf("endpoints %v, %v", rows, err)
		}
	})
}

// A replay is sent at once, with the same id and body. If it fails, the delivery has the status that it had before.
func TestReplay(t *testing.T) {
	code := 500
	inBubble(t, func(request) (*http.Response, error) { return status(code) }, func(t *testing.T, s *service) {
		path, _ := s.add("", toA)
		s.create("main", 1, 1)
		time.Sleep(time.Second)
		id, next := s.list(path, "")[0].ID, s.list(path, "")[0].Next
		wantAfter := func(what string, status storage.Status, tries int) (d shownDelivery) {
			t.Helper()
			if d = s.replay(path, id, 202); d.Status != storage.Replaying || d.ID != id {
				t.Errorf("%s: %+v", what, d)
			}
			time.Sleep(time.Second)
			if d = s.list(path, "")[0]; d.Status != status || len(d.Tries) != tries || !d.Tries[tries-1].Replay {
				t.Errorf("%s: %+v, want %s after %d tries", what, d, status, tries)
			}
			return d
		}
		if d := wantAfter("a failed replay of a waiting delivery", storage.Waiting, 2); !d.Next.Equal(next) {
			t.Errorf("the next try is at %v, want %v as before", d.Next, next)
		}
		time.Sleep(5 * time.Second)
		d := s.list(path, "")[0]
		if pause := time.Until(d.Next); len(d.Tries) != 3 || d.Tries[2].Replay || pause < 4*time.Minute ||
			pause > 6*time.Minute {
			t.Errorf("the next scheduled try: %+v, want a pause of 5 m", d)
		}
		s.failAll(path)
		wantAfter("a failed replay of a failed delivery", storage.Failed, 4)
		code = 200
		wantAfter("a replay of a failed delivery", storage.Delivered, 5)
		wantAfter("a replay of a delivered delivery", storage.Delivered, 6)
		for _, r := range s.requests("") {
			if r.id != id || r.body != `{"id":1,"name":"Fern"}` {
				t.Errorf("%s %s", r.id, r.body)
			}
		}
		for _, unknown := range []string{newEvent(time.Now()), "msg_", "x%00", "%ff"} {
			s.replay(path, unknown, 40403)
		}
		s.replay("other"+path, id, 40403)
		s.replay("/webhooks/wh_none", id, 40403)
	})
}

// delivering is a database whose waiting deliveries are delivered as soon as they are listed.
type delivering struct{ *database }

func (d delivering) Deliveries(ctx context.Context, f storage.DeliveryFilter) ([]storage.Delivery, error) {
	found, err := d.database.Deliveries(ctx, f)
	for _, changed := range found {
		if f.Status == storage.Waiting {
			changed.Status = storage.Delivered
			d.ChangeDeliveries(ctx, []storage.DeliveryChange{{Delivery: changed, From: f.Status}})
		}
	}
	return found, err
}

// A delivery whose status changes while deliveries are listed is listed once.
func TestListWhileDelivered(t *testing.T) {
	s := start(t, open(t), Config{}, nil)
	path, _ := s.add("", `"kind":"pull"`)
	s.create("main", 1, 3)
	s.storage = delivering{s.db}
	all := s.list(path, "")
	waits := slices.ContainsFunc(all, func(d shownDelivery) bool { return d.Status != storage.Delivered })
	if len(all) != 3 || waits {
		t.Errorf("%+v, want 3 delivered deliveries", all)
	}
}

// Failed deliveries of plants since a time are replayed, the newest 10,000. Only one such replay runs at a time.
func TestReplayFailed(t *testing.T) {
	inBubble(t, takes(time.Second), func(t *testing.T, s *service) {
		path, e := s.add("", toA)
		s.stop()
		s.create("main", 1, 1)
		time.Sleep(time.Minute)
		since := time.Now()
		s.create("main", 2, 3)
		s.failAll(path)
		body := fmt.Sprintf(`{"since":%q}`, since.UTC().Format(time.RFC3339))
		replay := func(body string) int {
			return want[map[string]int](s, 202, "POST", path+"/replay", body)["replaying"]
		}
		leave, _ := s.replays.Enter(e.ID)
		want[none](s, 40901, "POST", path+"/replay", body)
		leave()
		if got := replay(body); got != 2 {
			t.Errorf("%v, want 2", got)
		}
		want[none](s, 40901, "POST", path+"/replay", body)
		s.run()
		time.Sleep(time.Minute)
		s.stop()
		if got := len(s.requests("")); got != 2 || len(s.list(path, "status=failed")) != 1 || replay(body) != 0 {
			t.Errorf("%d requests, want 2: %+v", got, s.list(path, ""))
		}
		var many []plant.Record
		for id := range int64(maxReplayed) {
			many = append(many, plant.Record{Store: "main", Plant: plant.Plant{ID: -1 - id}, Event: newEvent(time.Now())})
		}
		s.db.CreateBatch(context.Background(), many)
		s.failAll(path)
		if got := replay(`{"since":"1999-01-01T00:00:00Z"}`); got != 10_000 || s.list(path, "status=failed")[0].Plant != 1 {
			t.Errorf("%d are replayed, want the newest 10,000", got)
		}
		for _, bad := range []string{"", "{}", `{"since":1}`, `{"since":"1d"}`, `{"since":null}`,
			`{"since":"2026-01-01T00:00:00Z","x":1}`} {
			want[none](s, 40039, "POST", path+"/replay", bad)
		}
	})
}

// At most 8 requests to an endpoint are in flight, 2 until one succeeds and after one fails, and 64 in all. At most 50
// start in a second. A receiver that hangs delays no other.
func TestBounds(t *testing.T) {
	broken := time.Date(2000, 1, 1, 0, 0, 8, 0, time.UTC) // 8 s after the start
	inBubble(t, func(r request) (*http.Response, error) {
		switch r.URL.Host[:4] {
		case "fast":
			return status(200)
		case "hang":
			return takes(time.Hour)(r)
		case "turn":
			time.Sleep(time.Second)
			return status(map[bool]int{true: 200, false: 500}[time.Now().Before(broken)])
		}
		return takes(3 * time.Second)(r)
	}, func(t *testing.T, s *service) {
		for _, host := range []string{"fast", "turn", "hang1", "hang2", "hang3", "slow0", "slow1", "slow2", "slow3", "slow4",
			"slow5", "slow6", "slow7", "slow8", "slow9"} {
			s.add(host[:4], fmt.Sprintf(`"url":"https://%s.example/"`, host))
		}
		s.stop()
		for store, plants := range map[string]int64{"fast": 150, "turn": 100, "hang": 20, "slow": 60} {
			s.create(store, 1, plants)
		}
		s.restartAt(time.Now())
		time.Sleep(3 * time.Second)
		if got := len(s.requests("fast.example")); got < 100 {
			t.Errorf("%d requests to a fast receiver after 3 s", got)
		}
		time.Sleep(2 * time.Minute)
		fast := s.requests("fast.example")
		for i := range fast[50:] {
			if d := fast[i+50].at.Sub(fast[i].at); d < time.Second {
				t.Fatalf("51 requests in %v", d)
			}
		}
		s.receivers.mu.Lock()
		if m := s.most; m["slow5.example"] > 8 || m["turn.example"] != 8 || m["hang1.example"] != 2 || m[""] != 64 ||
			s.twice {
			t.Errorf("most requests in flight: %v; one twice: %v", m, s.twice)
		}
		s.receivers.mu.Unlock()
		slowed := slices.DeleteFunc(s.requests("turn.example"), func(r request) bool {
			return r.at.Before(broken.Add(6*time.Second)) || r.at.After(broken.Add(10*time.Second))
		})
		if len(slowed) == 0 || len(slowed) > 10 {
			t.Errorf("%d requests in 4 s to a receiver that is broken, want 2 a second at most", len(slowed))
		}
		if got := len(s.requests("slow5.example")); got != 60 || len(fast) != 150 {
			t.Errorf("%d requests to a slow and %d to a fast receiver, want 60 and 150", got, len(fast))
		}
	})
}

// A delivery whose request hangs delays no other. Neither do many replays that fail.
func TestOthersAreSent(t *testing.T) {
	inBubble(t, func(r request) (*http.Response, error) {
		switch {
		case strings.HasPrefix(r.body, `{"id":1,`):
			return takes(time.Hour)(r)
		case strings.HasPrefix(r.body, `{"id":5`):
			time.Sleep(time.Second)
			return status(500)
		}
		return status(200)
	}, func(t *testing.T, s *service) {
		path, _ := s.add("", toA)
		s.create("main", 1, 9)
		time.Sleep(2 * time.Second)
		if got := len(s.list(path, "status=delivered")); got != 7 { // 5 fails
			t.Errorf("%d plants are delivered beside a request that hangs, want 7", got)
		}
		s.create("main", 500, 599)
		s.failAll(path)
		want[none](s, 202, "POST", path+"/replay", `{"since":"1999-01-01T00:00:00Z"}`)
		time.Sleep(time.Second)
		s.create("main", 10, 10)
		time.Sleep(20 * time.Second)
		if d := s.list(path, "limit=1")[0]; d.Plant != 10 || d.Status != storage.Delivered {
			t.Errorf("a new plant beside 100 replays: %+v", d)
		}
	})
}

// After DisableAll nothing is sent, also of what was being replayed: a copy must not call the receivers.
func TestDisableAll(t *testing.T) {
	inBubble(t, always(200), func(t *testing.T, s *service) {
		path, _ := s.add("", toA)
		s.stop()
		s.create("main", 1, 1)
		s.failAll(path)
		s.create("main", 2, 2)
		for _, d := range s.list(path, "") {
			s.replay(path, d.ID, 202)
		}
		if err := DisableAll(context.Background(), s.db, "the reason"); err != nil {
			t.Fatal(err)
		}
		s.run()
		time.Sleep(time.Hour)
		failed, waiting := s.list(path, "status=failed"), s.list(path, "status=waiting")
		if len(s.requests("")) != 0 || len(failed) != 1 || failed[0].Plant != 1 || len(waiting) != 1 {
			t.Errorf("%d requests; failed %+v, waiting %+v", len(s.requests("")), failed, waiting)
		}
	})
}

// Both secrets sign for a day after a rotation. Deliveries are removed after a day.
func TestRotation(t *testing.T) {
	inBubble(t, always(200), func(t *testing.T, s *service) {
		path, e := s.add("", toA)
		wantSigned := func(id int64, secrets ...string) {
			t.Helper()
			s.create("main", id, id)
			time.Sleep(time.Second)
			r := s.requests("")[len(s.requests(""))-1]
			if got := len(strings.Fields(r.Header.Get("webhook-signature"))); got != len(secrets) {
				t.Errorf("plant %d has %d signatures, want %d", id, got, len(secrets))
			}
			for _, secret := range secrets {
				if err := Verify(secret, r.Header, []byte(r.body), time.Now()); err != nil {
					t.Errorf("plant %d: %v", id, err)
				}
			}
		}
		wantSigned(1, e.Secret)
		rotated := want[shown](s, 200, "POST", path+"/rotate", "")
		wantSigned(2, rotated.Secret, e.Secret)
		s.restartAt(time.Now().Add(24*time.Hour - 3*time.Second))
		wantSigned(3, rotated.Secret, e.Secret)
		time.Sleep(3 * time.Second)
		wantSigned(4, rotated.Secret)
		if all := s.list(path, ""); len(all) != 2 {
			t.Errorf("%d deliveries, want 2: those of the day before are removed", len(all))
		}
		got := s.send("GET", "/webhooks", "").Body.String()
		if strings.Contains(got, "secret") || !strings.Contains(got, e.ID) {
			t.Errorf("the list has a secret, or not the endpoint: %s", got)
		}
	})
}

// A try that waits for one of the 64 slots is sent with the latest settings of its endpoint, or not at all. 410 from an
// earlier URL does not disable the endpoint.
func TestChangesBeforeSlot(t *testing.T) {
	respond := func(r request) (*http.Response, error) {
		if r.URL.Path == "/gone" {
			time.Sleep(time.Second)
			return status(410)
		}
		return takes(14 * time.Second)(r)
	}
	inBubble(t, respond, func(t *testing.T, s *service) {
		for n := range 10 {
			s.add("", fmt.Sprintf(`"url":"https://slow%d.example/"`, n))
		}
		moves, _ := s.add("", `"url":"https://moves.example/gone"`)
		s.create("main", 1, 1)
		time.Sleep(500 * time.Millisecond)
		want[none](s, 200, "PUT", moves, `{"url":"https://moved.example/"}`)
		time.Sleep(15 * time.Second)
		if e := want[shown](s, 200, "GET", moves, ""); e.Disabled {
			t.Errorf("after 410 from an earlier URL: %+v", e)
		}
		want[none](s, 204, "DELETE", moves, "")
		s.create("main", 2, 30)
		time.Sleep(time.Minute) // all slots are taken
		off, _ := s.add("", `"url":"https://off.example/"`)
		on, _ := s.add("", `"url":"https://on.example/"`)
		s.create("main", 100, 100)
		time.Sleep(time.Second)
		want[none](s, 200, "PUT", off, `{"url":"https://off.example/","disabled":true}`)
		want[none](s, 200, "PUT", on, `{"url":"https://latest.example/"}`)
		time.Sleep(time.Minute)
		if n := len(s.requests("off.example")) + len(s.requests("on.example")); n != 0 {
			t.Errorf("%d requests with earlier settings", n)
		}
		if n := len(s.requests("latest.example")); n != 1 {
			t.Errorf("%d requests to the latest URL, want 1", n)
		}
	})
}
