package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/storage"
	"plantstore/internal/storage/sqlite"
)

// The request is the one of the sample, signed.
func TestRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		c := &receiver{respond: always(204)}
		s := start(t, file, Config{}, c)
		path, e := s.add("https://a.example/hook?x=1")
		s.run()
		defer s.stop()
		s.create("main", 7)
		s.create("other", 8)
		time.Sleep(3 * time.Second)
		all := c.requests("")
		if len(all) != 1 {
			t.Fatalf("%d requests, want 1", len(all))
		}
		r := all[0]
		const body = `{"id":7,"name":"Fern"}`
		if r.Method != "POST" || r.URL.String() != "https://a.example/hook?x=1" || r.body != body ||
			r.ContentLength != int64(len(body)) || r.Header.Get("Content-Type") != "application/json" ||
			r.Header.Get("Webhook-Topic") != "plant.created" || r.Header.Get("User-Agent") != "PlantStore/test" {
			t.Errorf("%s %s %v %s", r.Method, r.URL, r.Header, r.body)
		}
		if err := Verify(e.Secret, r.Header, []byte(r.body), time.Now()); err != nil || len(r.Header) != 6 {
			t.Errorf("Verify() = %v; headers %v", err, r.Header)
		}
		d := s.list(path, "")
		if len(d) != 1 || d[0].ID != r.id || d[0].Plant != 7 || d[0].Status != storage.Delivered || len(d[0].Tries) != 1 ||
			d[0].Tries[0].Status != 204 || d[0].Tries[0].Error != "" || !d[0].Next.IsZero() {
			t.Errorf("deliveries: %+v", d)
		}
		if s.results["delivered"] != 1 || s.Oldest() != 0 {
			t.Errorf("results %v, the oldest waits for %v", s.results, s.Oldest())
		}
	})
}

// A delivery is tried ten times, with the pauses of the issue, also if the service is restarted between them.
func TestSchedule(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		c := &receiver{respond: always(500)}
		s := start(t, file, Config{}, c)
		path, _ := s.add("https://a.example/")
		s.run()
		defer func() { s.stop() }()
		s.create("main", 1)
		exact := 0
		for n, pause := range []time.Duration{
			5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
			20 * time.Hour, 24 * time.Hour,
		} {
			time.Sleep(2 * time.Second)
			d := s.list(path, "")[0]
			if len(d.Tries) != n+1 || d.Status != storage.Waiting || d.Tries[n].Error != "status" || d.Tries[n].Status != 500 {
				t.Fatalf("after try %d: %+v", n+1, d)
			}
			if waits := s.Oldest(); waits < time.Since(d.Created)-2*time.Second || waits > time.Since(d.Created) {
				t.Errorf("the oldest waits for %v, since %v", waits, d.Created)
			}
			ratio := float64(d.Next.Sub(d.Tries[n].Time)) / float64(pause)
			if ratio < 0.899 || ratio > 1.101 {
				t.Errorf("pause %d is %v, want %v ± 10 %%", n+1, d.Next.Sub(d.Tries[n].Time), pause)
			}
			if ratio > 0.999 && ratio < 1.001 {
				exact++
			}
			s.restartAt(d.Next.Add(-time.Second))
			time.Sleep(900 * time.Millisecond)
			if got := len(c.requests("")); got != n+1 {
				t.Fatalf("%d requests before the end of pause %d", got, n+1)
			}
		}
		if exact > 3 {
			t.Errorf("%d of 9 pauses have no jitter", exact)
		}
		time.Sleep(2 * time.Second)
		d := s.list(path, "")[0]
		if len(d.Tries) != 10 || d.Status != storage.Failed || !d.Next.IsZero() || s.results["status"] != 10 {
			t.Errorf("after ten tries: %+v, results %v", d, s.results)
		}
		s.restartAt(time.Now().Add(keepFailed - 3*time.Second))
		time.Sleep(time.Second)
		if got := len(s.list(path, "")); got != 1 || len(c.requests("")) != 10 {
			t.Errorf("%d deliveries after almost 7 days, want 1; %d requests", got, len(c.requests("")))
		}
		time.Sleep(4 * time.Second)
		if got := len(s.list(path, "")); got != 0 {
			t.Errorf("%d deliveries after 7 days", got)
		}
	})
}

// The jitter spreads over the whole range.
func TestJitter(t *testing.T) {
	now := time.Now()
	low, high := 2.0, 0.0
	for range 1000 {
		c := after(endpoint{}, storage.Delivery{Status: storage.Waiting}, try{Error: "timeout"}, now)
		ratio := float64(c.Due.Sub(now)) / float64(5*time.Second)
		low, high = min(low, ratio), max(high, ratio)
	}
	if low < 0.9 || low > 0.92 || high > 1.1 || high < 1.08 {
		t.Errorf("pauses from %.3f to %.3f of 5 s, want 0.9 to 1.1", low, high)
	}
}

// Retry-After makes a pause longer, never shorter, and 3xx is a failure that is not followed.
func TestResponses(t *testing.T) {
	date := time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC) // the clock of a bubble starts at midnight
	for _, test := range []struct {
		status     int
		retryAfter string
		low, high  time.Duration // of the first pause
	}{
		{429, "60", 60 * time.Second, 61 * time.Second},
		{502, "60", 60 * time.Second, 61 * time.Second},
		{503, date.Format(http.TimeFormat), 119 * time.Minute, 121 * time.Minute},
		{504, "999999", 24 * time.Hour, 24*time.Hour + time.Second},
		{503, date.AddDate(1, 0, 0).Format(http.TimeFormat), 24 * time.Hour, 24*time.Hour + time.Second},
		{429, "1", 4 * time.Second, 6 * time.Second}, {429, "-60", 4 * time.Second, 6 * time.Second},
		{503, "soon", 4 * time.Second, 6 * time.Second}, {503, "", 4 * time.Second, 6 * time.Second},
		{429, date.AddDate(-1, 0, 0).Format(http.TimeFormat), 4 * time.Second, 6 * time.Second},
		{500, "60", 4 * time.Second, 6 * time.Second}, {404, "60", 4 * time.Second, 6 * time.Second},
		{301, "60", 4 * time.Second, 6 * time.Second}, {307, "", 4 * time.Second, 6 * time.Second},
		{302, "", 4 * time.Second, 6 * time.Second}, {304, "", 4 * time.Second, 6 * time.Second},
	} {
		t.Run(fmt.Sprint(test.status, " ", test.retryAfter), func(t *testing.T) {
			inBubble(t, func(t *testing.T, file *sqlite.Storage) {
				c := &receiver{respond: func(request) (*http.Response, error) {
					return status(test.status, "Retry-After", test.retryAfter, "Location", "https://b.example/")
				}}
				s := start(t, file, Config{}, c)
				path, _ := s.add("https://a.example/")
				s.run()
				defer s.stop()
				s.create("main", 1)
				time.Sleep(time.Second)
				d := s.list(path, "")[0]
				if d.Status != storage.Waiting || len(d.Tries) != 1 || d.Tries[0].Error != "status" || len(c.requests("")) != 1 {
					t.Fatalf("%+v; %d requests", d, len(c.requests("")))
				}
				if pause := d.Next.Sub(d.Tries[0].Time); pause < test.low || pause > test.high {
					t.Errorf("the pause is %v, want %v to %v", pause, test.low, test.high)
				}
			})
		})
	}
}

// 410 disables the endpoint, and nothing more is sent to it.
func TestGone(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		c := &receiver{respond: always(410)}
		s := start(t, file, Config{}, c)
		path, _ := s.add("https://a.example/")
		s.create("main", series(5)...)
		s.run()
		defer s.stop()
		time.Sleep(time.Hour)
		e := want[shown](s, 200, "GET", path, "")
		if !e.Disabled || !strings.Contains(e.Reason, "410") || e.DisabledAt.IsZero() {
			t.Errorf("the endpoint: %+v", e)
		}
		failed, waiting := s.list(path, "status=failed"), s.list(path, "status=waiting")
		if len(failed) != 1 || len(waiting) != 4 || len(c.requests("")) != 1 {
			t.Errorf("%d failed and %d waiting deliveries, %d requests", len(failed), len(waiting), len(c.requests("")))
		}
		s.create("main", 6)
		if got := len(s.list(path, "")); got != 5 {
			t.Errorf("%d deliveries after a create, want 5", got)
		}
	})
}

// A disabled endpoint gets only replays. When it is enabled, it gets what has waited.
func TestDisabled(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		c := &receiver{respond: func(r request) (*http.Response, error) { return late(r, time.Second) }}
		s := start(t, file, Config{}, c)
		path, _ := s.add("https://a.example/")
		s.run()
		defer s.stop()
		s.create("main", series(5)...)
		time.Sleep(500 * time.Millisecond) // the first is in flight
		e := want[shown](s, 200, "PUT", path, `{"url":"https://a.example/","description":"d","disabled":true}`)
		if !e.Disabled || e.Reason != "a client has disabled it" || e.Description != "d" {
			t.Errorf("the endpoint: %+v", e)
		}
		s.create("main", 6)
		time.Sleep(time.Hour)
		waiting := s.list(path, "status=waiting")
		if got := len(c.requests("")); got != 1 || len(waiting) != 4 || s.Oldest() != 0 {
			t.Fatalf("%d requests and %d waiting deliveries, the oldest for %v", got, len(waiting), s.Oldest())
		}
		want[shownDelivery](s, 202, "POST", path+"/deliveries/"+waiting[0].ID+"/replay", "")
		time.Sleep(3 * time.Second)
		if all := c.requests(""); len(all) != 2 || all[1].id != waiting[0].ID {
			t.Errorf("%d requests after a replay, want 2", len(all))
		}
		e = want[shown](s, 200, "PUT", path, `{"url":"https://b.example/"}`)
		if e.Disabled || e.Reason != "" || !e.DisabledAt.IsZero() || e.Description != "" {
			t.Errorf("the endpoint: %+v", e)
		}
		time.Sleep(10 * time.Second)
		if got := len(c.requests("b.example")); got != 3 || len(s.list(path, "status=delivered")) != 5 {
			t.Errorf("%d requests to the new URL, want 3: %+v", got, s.list(path, ""))
		}
		want[none](s, 204, "DELETE", path, "")
		want[none](s, 40403, "GET", path, "")
		s.create("main", 7)
		time.Sleep(2 * storage.ForgetAfter)
		if rows, err := file.Webhooks(t.Context(), ""); len(rows) != 0 || err != nil || len(c.requests("")) != 5 {
			t.Errorf("endpoints %v, %v; %d requests", rows, err, len(c.requests("")))
		}
	})
}

// A replay is sent at once, with the same id and body. What comes after it depends on the delivery.
func TestReplay(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		code := 500
		c := &receiver{respond: func(request) (*http.Response, error) { return status(code) }}
		s := start(t, file, Config{}, c)
		path, _ := s.add("https://a.example/")
		other, _ := s.add("https://b.example/")
		want[shown](s, 200, "PUT", other, `{"url":"https://b.example/","disabled":true}`)
		s.run()
		defer s.stop()
		s.create("main", 1)
		time.Sleep(time.Second)
		id := s.list(path, "")[0].ID
		replay := path + "/deliveries/" + id + "/replay"
		wantAfter := func(what string, state storage.Status, tries, replays int) shownDelivery {
			t.Helper()
			if d := want[shownDelivery](s, 202, "POST", replay, ""); d.Status != storage.Replaying || d.ID != id {
				t.Errorf("%s: %+v", what, d)
			}
			time.Sleep(time.Second)
			d, got := s.list(path, "")[0], 0
			for _, try := range d.Tries {
				if try.Replay {
					got++
				}
			}
			if d.Status != state || len(d.Tries) != tries || got != replays || !d.Tries[tries-1].Replay {
				t.Errorf("%s: %+v, want %s after %d tries and %d replays", what, d, state, tries, replays)
			}
			return d
		}
		next := s.list(path, "")[0].Next
		if d := wantAfter("a failed replay of a waiting delivery", storage.Waiting, 2, 1); !d.Next.Equal(next) {
			t.Errorf("the next try is at %v, want %v as before", d.Next, next)
		}
		time.Sleep(5 * time.Second)
		d := s.list(path, "")[0]
		pause := d.Next.Sub(d.Tries[len(d.Tries)-1].Time)
		if len(d.Tries) != 3 || pause < 4*time.Minute || d.Tries[2].Replay {
			t.Errorf("the next scheduled try: %+v, want a pause of 5 m", d)
		}
		s.setAll(path, storage.Waiting, storage.Failed)
		wantAfter("a failed replay of a failed delivery", storage.Failed, 4, 2)
		code = 200
		wantAfter("a replay of a failed delivery", storage.Delivered, 5, 3)
		wantAfter("a replay of a delivered delivery", storage.Delivered, 6, 4)
		for _, r := range c.requests("") {
			if r.id != id || r.body != `{"id":1,"name":"Fern"}` {
				t.Errorf("%s %s", r.id, r.body)
			}
		}
		want[none](s, 40403, "POST", path+"/deliveries/"+newEvent(time.Now())+"/replay", "")
		want[none](s, 40403, "POST", path+"/deliveries/x%00/replay", "")
		want[none](s, 40403, "POST", other+"/deliveries/"+id+"/replay", "")
		want[none](s, 40403, "POST", "other"+replay, "")
	})
}

// A replay of all failed deliveries since a time; another one must wait for its end.
func TestReplayFailed(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		c := &receiver{respond: func(r request) (*http.Response, error) { return late(r, time.Second) }}
		s := start(t, file, Config{}, c)
		path, _ := s.add("https://a.example/")
		s.create("main", 1)
		time.Sleep(time.Minute)
		since := time.Now()
		s.create("main", 2, 3)
		s.setAll(path, storage.Waiting, storage.Failed)
		s.create("main", 4) // waits
		body := fmt.Sprintf(`{"since":%q}`, since.UTC().Format(time.RFC3339))
		if got := want[map[string]int](s, 202, "POST", path+"/replay", body); got["replaying"] != 2 {
			t.Errorf("%v, want 2", got)
		}
		want[none](s, 40901, "POST", path+"/replay", body)
		s.run()
		time.Sleep(time.Minute)
		s.stop()
		if got := len(c.requests("")); got != 3 || len(s.list(path, "status=failed")) != 1 {
			t.Errorf("%d requests, want 3: %+v", got, s.list(path, ""))
		}
		if got := want[map[string]int](s, 202, "POST", path+"/replay", body); got["replaying"] != 0 {
			t.Errorf("%v, want 0", got)
		}
		for _, bad := range []string{"", "{}", "null", `{"since":1}`, `{"since":"1d"}`, `{"since":null}`,
			`{"since":"2026-01-01T00:00:00Z","x":1}`} {
			want[none](s, 40039, "POST", path+"/replay", bad)
		}
		want[none](s, 40403, "POST", "/webhooks/wh_none/replay", body)
	})
}

// At most 8 requests of an endpoint are in flight, and 1 until one succeeds or after one fails; 50 start in a second.
func TestBounds(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		takes := map[string]time.Duration{"fast.example": time.Millisecond, "slow.example": time.Second}
		c := &receiver{respond: func(r request) (*http.Response, error) {
			if d := takes[r.URL.Host]; d > 0 {
				return late(r, d)
			}
			time.Sleep(time.Second)
			return status(500)
		}}
		s := start(t, file, Config{}, c)
		s.add("https://fast.example/")
		s.add("https://slow.example/")
		s.add("https://broken.example/")
		s.create("main", series(200)...)
		s.run()
		defer s.stop()
		time.Sleep(time.Minute)
		if m := c.most; m["slow.example"] != 8 || m["fast.example"] > 8 || m["broken.example"] != 1 || c.twice {
			t.Errorf("most requests in flight: %v; one twice: %v", m, c.twice)
		}
		fast := c.requests("fast.example")
		if len(fast) != 200 || len(c.requests("slow.example")) != 200 {
			t.Fatalf("%d and %d requests, want 200", len(fast), len(c.requests("slow.example")))
		}
		if took := fast[199].at.Sub(fast[0].at); took > 8*time.Second {
			t.Errorf("200 deliveries took %v", took)
		}
		for i := range fast[50:] {
			if d := fast[i+50].at.Sub(fast[i].at); d < time.Second {
				t.Fatalf("51 requests in %v", d)
			}
		}
	})
}

// At most 64 requests are in flight. An endpoint that hangs has one of them, so it delays no other.
func TestBoundOfAll(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		c := &receiver{respond: func(r request) (*http.Response, error) {
			if strings.HasPrefix(r.URL.Host, "hangs") {
				return late(r, time.Hour)
			}
			return late(r, 3*time.Second)
		}}
		s := start(t, file, Config{}, c)
		for n := range 6 {
			s.add(fmt.Sprintf("https://hangs%d.example/", n))
		}
		for n := range 10 {
			s.add(fmt.Sprintf("https://slow%d.example/", n))
		}
		s.create("main", series(30)...)
		s.run()
		defer s.stop()
		time.Sleep(3*time.Second + every)
		for n := range 10 {
			if got := len(c.requests(fmt.Sprintf("slow%d.example", n))); got == 0 {
				t.Errorf("endpoint %d has no request", n)
			}
		}
		time.Sleep(time.Minute)
		if c.most[""] != 64 || c.most["hangs0.example"] != 1 || c.twice {
			t.Errorf("most requests in flight: %v; one twice: %v", c.most, c.twice)
		}
		for n := range 10 {
			if got := len(c.requests(fmt.Sprintf("slow%d.example", n))); got != 30 {
				t.Errorf("endpoint %d has %d requests, want 30", n, got)
			}
		}
	})
}

// A try ends after 15 s. Both secrets sign for a day after a rotation.
func TestRotation(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		c := &receiver{respond: always(200)}
		s := start(t, file, Config{}, c)
		path, e := s.add("https://a.example/")
		s.run()
		defer func() { s.stop() }()
		wantSigned := func(what string, id int64, secrets ...string) {
			t.Helper()
			s.create("main", id)
			time.Sleep(time.Second)
			r := c.requests("")[len(c.requests(""))-1]
			if got := len(strings.Fields(r.Header.Get("webhook-signature"))); got != len(secrets) {
				t.Errorf("%s: %d signatures, want %d", what, got, len(secrets))
			}
			for _, secret := range secrets {
				if err := Verify(secret, r.Header, []byte(r.body), time.Now()); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		wantSigned("before", 1, e.Secret)
		rotated := want[shown](s, 200, "POST", path+"/rotate", "")
		if rotated.Secret == e.Secret || len(rotated.Secret) != len(e.Secret) || rotated.ID != e.ID {
			t.Errorf("rotated: %+v", rotated)
		}
		wantSigned("after", 2, rotated.Secret, e.Secret)
		s.restartAt(time.Now().Add(bothSecrets - 3*time.Second))
		wantSigned("almost a day after", 3, rotated.Secret, e.Secret)
		time.Sleep(3 * time.Second)
		wantSigned("a day after", 4, rotated.Secret)
		if all := s.list(path, ""); len(all) != 2 {
			t.Errorf("%d deliveries, want 2: those of the day before are removed", len(all))
		}
		for _, response := range []string{s.send("GET", path, "").Body.String(), s.send("GET", "/webhooks", "").Body.String(),
			s.send("PUT", path, `{"url":"https://a.example/"}`).Body.String()} {
			if strings.Contains(response, "whsec_") || strings.Contains(response, "secret") {
				t.Errorf("a response has a secret: %s", response)
			}
		}
	})
}

// An endpoint with too many waiting deliveries, or too many bytes, is disabled.
func TestTooManyWait(t *testing.T) {
	defer func(b bounds) { ordinary = b }(ordinary)
	for _, ordinary = range []bounds{{8, 1 << 30}, {1000, 160}} {
		inBubble(t, func(t *testing.T, file *sqlite.Storage) {
			s := start(t, file, Config{}, &receiver{respond: always(500)})
			path, _ := s.add("https://a.example/")
			for id := range int64(20) {
				s.create("main", id)
				synctest.Wait()
			}
			e := want[shown](s, 200, "GET", path, "")
			got := len(s.list(path, ""))
			if !e.Disabled || !strings.Contains(e.Reason, " bytes wait; at most ") || got < 7 || got > 12 {
				t.Errorf("%+v with %d deliveries", e, got)
			}
		})
	}
}
