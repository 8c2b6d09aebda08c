package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pull pulls from an endpoint, and returns the deliveries and the duration.
func (s *service) pull(path, query string) (found []pulled, took time.Duration) {
	s.t.Helper()
	started := time.Now()
	got := want[struct{ Deliveries []pulled }](s, 200, "GET", path+"/pull?"+query, "")
	return got.Deliveries, time.Since(started)
}

func (s *service) ack(path string, ids ...string) {
	s.t.Helper()
	want[none](s, 204, "POST", path+"/ack", `{"ids":["`+strings.Join(ids, `","`)+`"]}`)
}

// A pull returns the same deliveries until they are acknowledged, and they verify.
func TestPull(t *testing.T) {
	inBubble(t, always(200), func(t *testing.T, s *service) {
		path, e := s.add("", `"kind":"pull"`)
		push, _ := s.add("", toA)
		for query, want := range map[string]time.Duration{"wait=20": 20 * time.Second, "wait=99": 30 * time.Second, "": 0} {
			if found, took := s.pull(path, query); found == nil || len(found) != 0 || took != want {
				t.Errorf("pull?%s: %v after %v, want [] after %v", query, found, took, want)
			}
		}
		s.create("main", 1, 102)
		first, _ := s.pull(path, "")
		again, took := s.pull(path, "wait=20")
		if len(first) != 100 || len(again) != 100 || took != 0 || again[99].ID != first[99].ID {
			t.Fatalf("%d deliveries, and %d again after %v, want the same 100", len(first), len(again), took)
		}
		h := http.Header{}
		for name, value := range first[0].Headers {
			h.Set(name, value)
		}
		if err := Verify(e.Secret, h, []byte(first[0].Body), time.Now()); err != nil || len(h) != 5 {
			t.Errorf("Verify() = %v; headers %v", err, h)
		}
		ids := []string{first[0].ID, first[1].ID, "msg_none", newEvent(time.Now())}
		s.ack(path, ids...)
		s.ack(path, ids...)
		if rest, _ := s.pull(path, ""); len(rest) != 100 || rest[0].ID != first[2].ID {
			t.Errorf("%d deliveries after two are acknowledged, want the other 100", len(rest))
		}
		s.replay(path, ids[0], 202)
		if rest, _ := s.pull(path, ""); len(rest) != 100 || rest[99].ID != ids[0] {
			t.Errorf("%d deliveries, want the one that is replayed too", len(rest))
		}
		s.ack(path, ids...)
		if d := s.list(path, "status=delivered"); len(d) != 2 || d[0].Tries[0].Replay == d[1].Tries[0].Replay {
			t.Errorf("delivered: %+v", d)
		}
		for _, query := range []string{"pull?wait=-1", "pull?wait=x", "pull?wait=1&wait=2", "deliveries?limit=0",
			"deliveries?status=x", "deliveries?before=x", "deliveries?limit=x", "deliveries?status=failed&status=failed",
			"deliveries?before=" + ids[0] + "&before=" + ids[0]} {
			want[none](s, 40040, "GET", path+"/"+query, "")
		}
		for _, body := range []string{"", "{}", `{"ids":[]}`, `{"ids":[1]}`, `{"ids":["x"],"ids":["x"]}`,
			`{"ids":["x"],"retry_in":0}`, `{"ids":["x"],"retry_in":1.5}`, `{"ids":["x"],"retry_in":3601}`,
			`{"ids":["x"],"retry_in":null}`, `{"ids":["x"],"retry_in":"1"}`,
			`{"ids":[` + strings.Repeat(`"x",`, 100) + `"x"]}`} {
			want[none](s, 40039, "POST", path+"/ack", body)
		}
		want[none](s, 40039, "PUT", path, " null")
		want[none](s, 40039, "GET", push+"/pull", "")
		want[none](s, 40403, "GET", "other"+path+"/pull", "")
	})
}

// With retry_in, deliveries are pulled again after this time, and others before. Their tries are kept.
func TestRetryIn(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *service) {
		path, _ := s.add("", `"kind":"pull"`)
		s.create("main", 1, 101)
		first, _ := s.pull(path, "")
		for _, d := range first {
			want[none](s, 204, "POST", path+"/ack", fmt.Sprintf(`{"ids":[%q],"retry_in":30.0}`, d.ID))
		}
		if last, _ := s.pull(path, ""); len(last) != 1 {
			t.Fatalf("%d deliveries, want the one that was not pulled", len(last))
		} else {
			s.ack(path, last[0].ID)
			s.replay(path, last[0].ID, 202)
			want[none](s, 204, "POST", path+"/ack", fmt.Sprintf(`{"ids":[%q],"retry_in":3600}`, last[0].ID))
			if d := s.list(path, "limit=1")[0]; d.Status != "replaying" || len(d.Tries) != 1 {
				t.Errorf("%+v, want its first try", d)
			}
		}
		if found, took := s.pull(path, "wait=20"); len(found) != 0 {
			t.Errorf("%d deliveries after %v", len(found), took)
		}
		if found, took := s.pull(path, "wait=20"); len(found) != 100 || took < 9*time.Second || took > 11*time.Second {
			t.Errorf("%d deliveries after %v more, want 100 after 10 s", len(found), took)
		}
	})
}

// An endpoint that was disabled because it was full stays enabled while its deliveries drain.
func TestEnableFull(t *testing.T) {
	defer func(b bounds) { ordinary = b }(ordinary)
	ordinary = bounds{8, 1 << 20}
	inBubble(t, always(500), func(t *testing.T, s *service) {
		path, _ := s.add("", toA)
		create := func(first, last int64) (disabled bool) {
			for id := first; id <= last; id++ {
				s.create("main", id, id)
				time.Sleep(time.Millisecond) // counting ends
			}
			return want[shown](s, 200, "GET", path, "").Disabled
		}
		if !create(1, 20) {
			t.Fatal("an endpoint with 20 waiting deliveries is not disabled")
		}
		want[none](s, 200, "PUT", path, "{"+toA+"}")
		if create(21, 21) || !create(22, 24) {
			t.Error("after enabling, one create must not disable the endpoint, and four must")
		}
	})
}

// A waiting pull returns at once after a create, or within a second after one of another process. Four may wait.
func TestWaitingPulls(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *service) {
		path, _ := s.add("", `"kind":"pull"`)
		for n, creator := range []*service{s, start(t, s.db, Config{}, s.receivers)} {
			ended := make(chan time.Duration)
			for range 4 {
				go func() {
					found, took := s.pull(path, "wait=30")
					if len(found) != 1 {
						t.Errorf("a waiting pull returns %d deliveries", len(found))
					}
					ended <- took - 10*time.Second
				}()
			}
			time.Sleep(10 * time.Second)
			want[none](s, 42905, "GET", path+"/pull", "")
			creator.create("main", int64(n), int64(n))
			for range 4 {
				if took := <-ended; creator == s && took != 0 || took > time.Second {
					t.Errorf("a waiting pull returns %v after the create", took)
				}
			}
			found, _ := s.pull(path, "")
			s.ack(path, found[0].ID)
		}
		time.AfterFunc(5*time.Second, func() { close(s.stopping) })
		if _, took := s.pull(path, "wait=30"); took != 5*time.Second {
			t.Errorf("a waiting pull returns after %v, want 5 s: the service stops", took)
		}
	})
}

// An endpoint that nobody pulls for its TTL is removed. An endpoint with too many waiting deliveries or bytes is
// disabled. A sandbox has two endpoints.
func TestPullBounds(t *testing.T) {
	defer func(b bounds) { ordinary = b }(ordinary)
	ordinary = bounds{1000, 160} // 22 bytes a delivery
	inBubble(t, nil, func(t *testing.T, s *service) {
		read, _ := s.add("", `"kind":"pull","ttl":60`)
		unread, _ := s.add("", `"kind":"pull","ttl":60`)
		for range 10 {
			time.Sleep(50 * time.Second)
			s.pull(read, "")
		}
		want[none](s, 40403, "GET", unread, "")
		for id := range int64(20) {
			s.create("main", id, id)
			time.Sleep(time.Millisecond) // counting ends
		}
		e, got := want[shown](s, 200, "GET", read, ""), len(s.list(read, ""))
		if !e.Disabled || !strings.Contains(e.Reason, " wait; at most 1000 with 160 bytes ") || got < 8 || got > 18 {
			t.Errorf("%+v with %d deliveries", e, got)
		}
		time.Sleep(time.Minute + 2*time.Second)
		want[none](s, 40403, "GET", read, "")

		const box = "sandbox:q3hyn7kxw5v2t6zrd4mbcj3pae"
		want[none](s, 40039, "POST", box+"/webhooks", "{"+toA+"}")
		path, e := s.add(box, `"kind":"pull","ttl":604800.0`)
		s.add(box, `"kind":"pull"`)
		want[none](s, 40041, "POST", box+"/webhooks", `{"kind":"pull"}`)
		s.create(box, 1, 1)
		found, _ := s.pull(path, "")
		s.ack(path, found[0].ID)
		time.Sleep(2 * time.Second)
		if d := s.list(path, ""); len(d) != 0 || e.TTL != 604_800 {
			t.Errorf("a delivered delivery of a sandbox is kept: %+v; ttl %d", d, e.TTL)
		}
		s.create(box, 2, 1500)
		time.Sleep(time.Second)
		if e = want[shown](s, 200, "GET", path, ""); !e.Disabled || !strings.Contains(e.Reason, "1000 with 1048576 ") {
			t.Errorf("an endpoint of a sandbox after 1,500 creates: %+v", e)
		}
		want[none](s, 40039, "PUT", path, `{}`) // until some of what waits is acknowledged
		want[none](s, 200, "PUT", path, `{"disabled":true}`)
		for _, bad := range []string{`"kind":"x"`, `"kind":"pull",` + toA, `"kind":"pull","ttl":59`, `"kind":"pull","x":1`,
			`"kind":"pull","ttl":604801`, `"kind":"pull","ttl":60.5`, `"kind":"pull","ttl":null`,
			`"kind":"pull","description":"` + strings.Repeat("x", 1001) + `"`,
			toA + `,"ttl":3600`} {
			want[none](s, 40039, "POST", "/webhooks", "{"+bad+"}")
		}
		for range 16 {
			s.add("", `"kind":"pull"`)
		}
		want[none](s, 40041, "POST", "/webhooks", `{"kind":"pull"}`)
	})
}

// One process delivers. Another one takes over at most 14 s after its death, and sooner after it has stopped.
func TestTakeover(t *testing.T) {
	for _, dies := range []bool{true, false} {
		inBubble(t, takes(14*time.Second), func(t *testing.T, s *service) {
			path, _ := s.add("", toA)
			time.Sleep(2 * time.Second)
			next := start(t, s.db.Storage, Config{}, s.receivers)
			next.run()
			defer func() { next.stop() }()
			next.create("main", 1, 2)
			time.Sleep(time.Minute)
			if len(s.requests("")) != 2 || s.tried("delivered") != 2 || next.tried("delivered") != 0 {
				t.Fatalf("%d requests, and %d delivered by the first process; want 2", len(s.requests("")), s.tried("delivered"))
			}
			next.create("main", 3, 3)
			time.Sleep(5 * time.Second) // in flight
			stopped, most := time.Now(), stopTime+renewAfter+2*every
			if dies {
				s.db.lost.Store(true)
				most = leaseTime + renewAfter + every
			} else {
				s.stop()
			}
			for len(s.requests("")) < 4 && time.Since(stopped) < time.Hour {
				time.Sleep(100 * time.Millisecond)
			}
			took := time.Since(stopped)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if took > most || s.twice {
				t.Errorf("a takeover after %v, want at most %v; in flight twice: %v", took, most, s.twice)
			}
			if d := next.list(path, "status=delivered"); len(d) != 3 || next.tried("delivered") != 1 {
				t.Errorf("%+v, %d delivered by the next process", d, next.tried("delivered"))
			}
		})
	}
}

// Few requests may wait to change endpoints: Refresh, and the renewal of the lease after it, wait for them. Pulls of
// sandboxes do not use the slots of other stores.
func TestWaitersAreBounded(t *testing.T) {
	s := start(t, open(t), Config{}, nil)
	path, _ := s.add("", `"kind":"pull"`)
	codes := make(chan int, 50)
	s.changing.Lock()
	for range cap(codes) {
		go func() { codes <- s.send("POST", path+"/rotate", "").Code }()
	}
	for n := range cap(codes) {
		want := 429
		if n == cap(codes)-maxChangersOf {
			s.changing.Unlock()
		}
		if n >= cap(codes)-maxChangersOf {
			want = 200
		}
		if got := <-codes; got != want {
			t.Errorf("response %d has the status %d, want %d", n, got, want)
		}
	}

	for n := range maxPulls {
		if _, ok := s.boxPulls.Enter(fmt.Sprint(n)); !ok {
			t.Fatalf("request %d is refused", n)
		}
	}
	s.pull(path, "")
	const box = "sandbox:q3hyn7kxw5v2t6zrd4mbcj3pae"
	path, _ = s.add(box, `"kind":"pull"`)
	want[none](s, 42905, "GET", path+"/pull", "")
}

// An endpoint that nobody reads is removed also if a delivery waits, but not because the service was away.
func TestUnreadWhileAway(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *service) {
		path, _ := s.add("", `"kind":"pull","ttl":3600`)
		s.create("main", 1, 1)
		s.restartAt(time.Now().Add(48 * time.Hour))
		time.Sleep(readableFor - time.Minute)
		if found, _ := s.pull(path, ""); len(found) != 1 {
			t.Errorf("%d deliveries after two days, want 1", len(found))
		}
		time.Sleep(50 * time.Minute)
		want[none](s, 200, "GET", path, "")
		time.Sleep(20 * time.Minute)
		want[none](s, 40403, "GET", path, "")
	})
}
