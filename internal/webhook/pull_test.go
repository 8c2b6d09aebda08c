package webhook

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/sqlite"
)

// pull returns what a pull endpoint has, after how long.
func (s *service) pull(path, query string) (found []pulled, took time.Duration) {
	s.t.Helper()
	started := time.Now()
	got := want[struct{ Deliveries []pulled }](s, 200, "GET", path+"/pull?"+query, "")
	return got.Deliveries, time.Since(started)
}

// A pull returns the same deliveries until they are acknowledged, and they verify.
func TestPull(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		s := start(t, file, Config{}, &receiver{respond: always(200)})
		path, e := s.addPull("")
		push, _ := s.add("https://a.example/")
		if e.TTL != 86_400 || e.URL != "" || e.Kind != pull {
			t.Errorf("the endpoint: %+v", e)
		}
		if found, took := s.pull(path, "wait=20"); len(found) != 0 || took != 20*time.Second {
			t.Errorf("%d deliveries after %v, want none after 20 s", len(found), took)
		}
		if found, took := s.pull(path, "wait=99"); found == nil || took != maxWait*time.Second {
			t.Errorf("%v after %v, want [] after 30 s", found, took)
		}
		s.create("main", series(102)...)
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
		ids := fmt.Sprintf(`{"ids":[%q,%q,"msg_none",%q]}`, first[0].ID, first[1].ID, newEvent(time.Now()))
		want[none](s, 204, "POST", path+"/ack", ids)
		want[none](s, 204, "POST", path+"/ack", ids)
		if rest, _ := s.pull(path, ""); len(rest) != 100 || rest[0].ID != first[2].ID {
			t.Errorf("%d deliveries after two are acknowledged, want the other 100", len(rest))
		}
		want[none](s, 202, "POST", path+"/deliveries/"+first[0].ID+"/replay", "")
		if rest, _ := s.pull(path, ""); len(rest) != 100 || rest[0].ID != first[0].ID {
			t.Errorf("%d deliveries, want first the one that is replayed", len(rest))
		}
		want[none](s, 204, "POST", path+"/ack", ids)
		if d := s.list(path, "status=delivered"); len(d) != 2 || d[0].Tries[0].Replay == d[1].Tries[0].Replay {
			t.Errorf("delivered: %+v", d)
		}
		for _, request := range []string{"GET pull?wait=-1", "GET pull?wait=x", "GET pull?wait=1&wait=2",
			"GET deliveries?limit=0", "GET deliveries?status=x", "GET deliveries?before=x", "GET deliveries?limit=x"} {
			method, query, _ := strings.Cut(request, " ")
			want[none](s, 40040, method, path+"/"+query, "")
		}
		for _, ids := range []string{"", " null", "{}", `{"ids":[]}`, `{"ids":[1]}`, `{"ids":["x"],"ids":["x"]}`,
			`{"ids":[` + strings.Repeat(`"x",`, 100) + `"x"]}`} {
			want[none](s, 40039, "POST", path+"/ack", ids)
		}
		want[none](s, 40039, "GET", push+"/pull", "")
		want[none](s, 40039, "PUT", path, " null")
		want[none](s, 40039, "POST", push+"/ack", ids)
		want[none](s, 40403, "GET", "other"+path+"/pull", "")
	})
}

// A waiting pull returns at once after a create, of another process within a second. Four may wait.
func TestWaitingPulls(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		s, other := start(t, file, Config{}, nil), start(t, file, Config{}, nil)
		path, _ := s.addPull("")
		s.run()
		defer s.stop()
		other.run()
		defer other.stop()
		time.Sleep(2 * time.Second)
		for _, creator := range []*service{s, other} {
			ended := make(chan time.Duration)
			for range maxPullsOf {
				go func() {
					found, took := s.pull(path, "wait=30")
					if len(found) != 1 {
						t.Errorf("a waiting pull returns %d deliveries", len(found))
					}
					ended <- took
				}()
			}
			time.Sleep(10 * time.Second)
			want[none](s, 42905, "GET", path+"/pull", "")
			creator.create("main", time.Now().UnixMilli())
			for range maxPullsOf {
				took := <-ended - 10*time.Second
				if creator == s && took != 0 || took > every {
					t.Errorf("a waiting pull returns %v after the create", took)
				}
			}
			found, _ := s.pull(path, "")
			want[none](s, 204, "POST", path+"/ack", fmt.Sprintf(`{"ids":[%q]}`, found[0].ID))
		}
		go func() {
			time.Sleep(5 * time.Second)
			close(s.closing)
		}()
		if _, took := s.pull(path, "wait=30"); took != 5*time.Second {
			t.Errorf("a waiting pull returns after %v, want 5 s: the service stops", took)
		}
	})
}

// An endpoint that nobody reads for its TTL is removed. In a sandbox, there are two of this kind, with few deliveries.
func TestUnread(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		s := start(t, file, Config{}, nil)
		read, _ := s.addPull(`,"ttl":60`)
		unread, _ := s.addPull(`,"ttl":60,"description":"x"`)
		s.run()
		defer s.stop()
		for range 10 {
			time.Sleep(50 * time.Second)
			s.pull(read, "")
		}
		want[none](s, 40403, "GET", unread, "")
		time.Sleep(50 * time.Second)
		want[none](s, 200, "GET", read, "")
		time.Sleep(30 * time.Second)
		want[none](s, 40403, "GET", read, "")

		const box = "sandbox:q3hyn7kxw5v2t6zrd4mbcj3pae"
		want[none](s, 40039, "POST", box+"/webhooks", `{"url":"https://a.example"}`)
		e := want[shown](s, 201, "POST", box+"/webhooks", `{"kind":"pull","ttl":604800.0}`)
		want[none](s, 201, "POST", box+"/webhooks", `{"kind":"pull"}`)
		want[none](s, 40041, "POST", box+"/webhooks", `{"kind":"pull"}`)
		s.create(box, 1)
		path := box + "/webhooks/" + e.ID
		found, _ := s.pull(path, "")
		want[none](s, 204, "POST", path+"/ack", fmt.Sprintf(`{"ids":[%q]}`, found[0].ID))
		time.Sleep(2 * time.Second)
		if d := s.list(path, ""); len(d) != 0 {
			t.Errorf("a delivered delivery of a sandbox is kept: %+v", d)
		}
		for id := range int64(1500) {
			s.create(box, id+2)
		}
		synctest.Wait()
		if e = want[shown](s, 200, "GET", path, ""); !e.Disabled || len(s.list(path, "")) == 0 {
			t.Errorf("an endpoint of a sandbox after 1,500 creates: %+v", e)
		}
		for _, bad := range []string{`"kind":"x"`, `"kind":""`, `"url":"https://a.example"`, `"ttl":59`, `"ttl":604801`,
			`"ttl":60.5`, `"ttl":"60"`, `"ttl":null`, `"x":1`, `"description":"` + strings.Repeat("x", 1001) + `"`, `"kind":"pull"`} {
			want[none](s, 40039, "POST", "/webhooks", `{"kind":"pull",`+bad+`}`)
		}
		for range maxEndpoints {
			s.addPull("")
		}
		want[none](s, 40041, "POST", "/webhooks", `{"kind":"pull"}`)
	})
}

// One process delivers. Another one takes over at most 14 s after its death, and 4 s after it has stopped.
func TestTakeover(t *testing.T) {
	for _, dies := range []bool{true, false} {
		inBubble(t, func(t *testing.T, file *sqlite.Storage) {
			c := &receiver{respond: func(r request) (*http.Response, error) { return late(r, 14*time.Second) }}
			hung := &receiver{respond: func(r request) (*http.Response, error) { return late(r, time.Hour) }}
			first, second := start(t, file, Config{}, c), start(t, file, Config{}, c)
			path, _ := first.add("https://a.example/")
			first.run()
			time.Sleep(2 * time.Second)
			second.run()
			time.Sleep(2 * time.Second)
			defer func() { second.stop() }()
			second.create("main", 1, 2)
			time.Sleep(time.Minute)
			if len(c.requests("")) != 2 || first.results["delivered"] != 2 || len(second.results) != 0 || c.twice {
				t.Fatalf("%d requests, want 2; results %v and %v", len(c.requests("")), first.results, second.results)
			}
			first.client.Transport = hung
			second.create("main", 3)
			time.Sleep(5 * time.Second)
			c.respond = func(r request) (*http.Response, error) {
				if hung.of[""] > 0 {
					t.Error("a delivery is in flight twice")
				}
				return status(200)
			}
			stopped := time.Now()
			if first.db.lost.Store(dies); !dies {
				first.stop()
			}
			for len(second.list(path, "status=delivered")) < 3 {
				if time.Sleep(100 * time.Millisecond); time.Since(stopped) > time.Hour {
					t.Fatal("no takeover")
				}
			}
			took, most := time.Since(stopped), stopTime+renewAfter+every+time.Second
			if dies {
				most = leaseTime + renewAfter + every
			}
			if took > most {
				t.Errorf("a takeover after %v, want at most %v", took, most)
			}
			if dies {
				first.stop()
			}
			if n := first.db.changes.Load(); n != 2 {
				t.Errorf("the first process has stored %d results, want 2", n)
			}
		})
	}
}

// Results of tries that end together are stored together, and only what was responded is delivered.
func TestResults(t *testing.T) {
	inBubble(t, func(t *testing.T, file *sqlite.Storage) {
		c := &receiver{respond: func(r request) (*http.Response, error) { return late(r, 3*time.Second) }}
		s := start(t, file, Config{}, c)
		var paths []string
		for n := range 5 {
			path, _ := s.add(fmt.Sprintf("https://%d.example/", n))
			paths = append(paths, path)
		}
		s.run()
		defer s.stop()
		s.create("main", 1)
		time.Sleep(2 * time.Second)
		for _, path := range paths {
			if d := s.list(path, "")[0]; d.Status != storage.Waiting || len(d.Tries) != 0 {
				t.Errorf("before the response: %+v", d)
			}
		}
		time.Sleep(3 * time.Second)
		for _, path := range paths {
			if d := s.list(path, "")[0]; d.Status != storage.Delivered || len(d.Tries) != 1 {
				t.Errorf("after the response: %+v", d)
			}
		}
		if n := s.db.changes.Load(); n > 2 || len(c.requests("")) != 5 {
			t.Errorf("%d transactions for the results of %d requests", n, len(c.requests("")))
		}
	})
}

// PostgreSQL delivers, replays and hands over as SQLite does.
func TestPostgreSQL(t *testing.T) {
	var all [2]*service
	address := pgtest.Database(t)
	got := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("webhook-id")
	}))
	defer receiver.Close()
	private, _ := ParseTargets("private")
	for i := range all {
		st, err := postgres.Open(context.Background(), address, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		all[i] = start(t, st, Config{Targets: private}, nil)
		all[i].run()
		defer func() { all[i].stop() }()
	}
	path, _ := all[0].add(receiver.URL)
	pgtest.Eventually(t, "the other process knows the endpoint", func() bool { return len(all[1].of("main")) == 1 })
	all[1].create("main", 1)
	id := <-got
	pgtest.Eventually(t, "delivered", func() bool { return len(all[1].list(path, "status=delivered")) == 1 })
	want[none](all[0], 202, "POST", path+"/deliveries/"+id+"/replay", "")
	if again := <-got; again != id {
		t.Errorf("replayed %s, want %s", again, id)
	}
	for _, bad := range []string{"x%00", "%ff", "msg_"} {
		want[none](all[0], 40403, "POST", path+"/deliveries/"+bad+"/replay", "")
	}
	all[0].stop()
	all[1].create("main", 2)
	<-got
	all[1].stop()
	all[0].run()
	all[0].create("main", 3)
	<-got
	pgtest.Eventually(t, "stored", func() bool { return len(all[0].list(path, "status=delivered")) == 3 })
	want[none](all[0], 204, "DELETE", path, "")
}
