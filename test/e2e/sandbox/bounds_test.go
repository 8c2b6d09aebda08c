package sandbox

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// An address may create as many sandboxes as its rate allows, and all addresses as many as the service may have.
func TestSandboxesOfAnAddress(t *testing.T) {
	t.Parallel()
	testkit.OnEachEngine(t, func(t *testing.T, s *testkit.Server) {
		for range 10 {
			newBox(t, s, `{"seed":"empty"}`)
		}
		another := []string{"Authorization", "X-Forwarded-For: 192.0.2.1"}
		for i, want := range []struct{ number, others int }{{42904, 0}, {0, 1}, {0, 1}, {50307, 1}} {
			a := send(t, testkit.Target{URL: s.URL}, "POST", "/sandboxes", "", another[:1+want.others]...)
			if retry := a.Header.Get("Retry-After") != ""; a.Number() != want.number || retry != (want.number != 0) {
				t.Errorf("create %d after 10: %d %s %v, want %d", i, a.Status, a.Body, a.Header, want.number)
			}
		}
	}, "--sandbox", "--sandbox-rate", "10/h", "--max-sandboxes", "12", "--trusted-proxies", "127.0.0.1")
}

// A sandbox has at most 1,000 plants and a mebibyte of text, also after a restart. What stores nothing more succeeds.
func TestFullSandbox(t *testing.T) {
	t.Parallel()
	testkit.OnEachDatabase(t, func(t *testing.T, db string) {
		s := testkit.Start(t, db, "--sandbox")
		many, large := newBox(t, s, ""), newBox(t, s, `{"seed":"empty"}`)
		text := strings.Repeat("x", 1<<20/32)
		for id := range 32 {
			send(t, large.Target, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":%q}`, id, text))
		}
		if code := s.Stop(); code != 0 {
			t.Fatalf("exit %d", code)
		}
		fill(t, db, many.Store, 13, 999) // sooner than the rate of a sandbox allows
		s = testkit.StartAgain(t, s, db, "--sandbox")
		many.URL, large.URL = s.URL, s.URL
		var edits sync.WaitGroup
		for range 16 { // They must not be counted more often than they are made.
			edits.Go(func() { send(t, large.Target, "PUT", "/plants/0", `{"name":"x"}`) })
		}
		edits.Wait()
		send(t, large.Target, "PUT", "/plants/0", fmt.Sprintf(`{"name":%q}`, text))
		for _, step := range []struct {
			b                  box
			method, path, body string
			number             int
		}{
			{many, "POST", "/plants", `{"id":1000,"name":"x"}`, 0},
			{many, "POST", "/plants", `{"id":1001,"name":"x"}`, 40035},
			{many, "POST", "/plants", `{"id":1000,"name":"x"}`, 0},
			{many, "POST", "/plants", `{"id":1000,"name":"y"}`, 40009},
			{many, "PUT", "/plants/1000", `{"name":"longer"}`, 0},
			{many, "DELETE", "/plants/1", "", 0},
			{many, "POST", "/plants", `{"id":1001,"name":"x"}`, 0},
			{many, "POST", "/plants", `{"id":1002,"name":"x"}`, 40035},
			{large, "POST", "/plants", `{"id":99,"name":"x"}`, 40035},
			{large, "POST", "/plants", fmt.Sprintf(`{"id":0,"name":%q}`, text), 0},
			{large, "PUT", "/plants/1", fmt.Sprintf(`{"name":"x%s"}`, text), 40035},
			{large, "PUT", "/plants/1", fmt.Sprintf(`{"name":"y%s"}`, text[1:]), 0},
			{large, "DELETE", "/plants/2", "", 0},
			{large, "POST", "/plants", `{"id":99,"name":"x"}`, 0},
			{large, "POST", "/plants", fmt.Sprintf(`{"id":100,"name":%q}`, text), 40035},
			{large, "POST", "/sandbox/reset", "", 0},
			{large, "POST", "/plants", fmt.Sprintf(`{"id":100,"name":%q}`, text), 0},
		} {
			a := send(t, step.b.Target, step.method, step.path, step.body)
			if a.Number() != step.number || step.number == 0 && a.Status > 204 {
				t.Errorf("%s %s %.40s: %d %.200s, want %d", step.method, step.path, step.body, a.Status, a.Body, step.number)
			}
		}
		if got := rowsOf(t, db, "plants", many.Store); got != "1000" {
			t.Errorf("%s plants are stored, want 1000", got)
		}
	})
}

// fill stores plants in a sandbox, and how many there are.
func fill(t *testing.T, db, store string, from, to int) {
	t.Helper()
	testkit.Query(t, db, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO plants (store, id, name) SELECT '%s', i, 'x' FROM n`, from, to, store))
	testkit.Query(t, db, fmt.Sprintf("UPDATE sandboxes SET plants = %d WHERE store = '%s'", to, store))
}

// A sandbox that is removed or has expired disappears with its plants. Its token is no token of an operator.
func TestEnd(t *testing.T) {
	t.Parallel()
	testkit.OnEachDatabase(t, func(t *testing.T, db string) {
		s := testkit.Start(t, db, "--sandbox")
		removed, expired, kept := newBox(t, s, ""), newBox(t, s, ""), newBox(t, s, "")
		out, errs, code := testkit.Run(t, nil, "token", "list", "--db", db)
		if code != 0 || strings.Contains(out, "sandbox") {
			t.Errorf("token list: exit %d, %s%s", code, out, errs)
		}
		fill(t, db, removed.Store, 13, 1000)
		testkit.WantResponse(t, "DELETE /sandbox", send(t, removed.Target, "DELETE", "/sandbox", ""), 204, "")
		wantEnded(t, removed)
		if got := rowsOf(t, db, "plants", removed.Store); got != "0" {
			t.Errorf("%s plants of a removed sandbox are stored", got)
		}
		s.Kill() // no process knows that it is used
		fill(t, db, expired.Store, 13, 1000)
		const end = "UPDATE sandboxes SET expires = 1 WHERE store IN ('%s', '%s')"
		testkit.Query(t, db, fmt.Sprintf(end, expired.Store, removed.Store))
		s = testkit.StartAgain(t, s, db) // Also a server without sandboxes removes them.
		for _, b := range []box{removed, expired} {
			testkit.WaitFor(t, "a sandbox to disappear", func() bool {
				return rowsOf(t, db, "plants", b.Store)+rowsOf(t, db, "sandboxes", b.Store) == "00"
			})
		}
		kept.URL = s.URL
		testkit.WantError(t, "a sandbox without --sandbox", send(t, kept.Target, "GET", "/plants", ""), 40104)
		s.Kill()
		s = testkit.StartAgain(t, s, db, "--sandbox")
		kept.URL, expired.URL = s.URL, s.URL
		if a := send(t, kept.Target, "GET", "/plants/12", ""); a.Status != 200 {
			t.Errorf("a sandbox after restarts: %d %s", a.Status, a.Body)
		}
		testkit.WantError(t, "an expired sandbox", send(t, expired.Target, "GET", "/plants", ""), 40104)
	})
}

// wantEnded waits until a server refuses the token of a sandbox that has just been removed.
func wantEnded(t *testing.T, b box) {
	t.Helper()
	for removed := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		after := time.Since(removed)
		a := send(t, b.Target, "GET", "/faults", "")
		if a.Status == 401 || t.Failed() {
			return
		}
		if after > 2*time.Second {
			t.Errorf("the token is valid %v after the sandbox was removed: %d %s", after, a.Status, a.Body)
			return
		}
	}
}

// Processes on one database share sandboxes and their bounds.
func TestProcesses(t *testing.T) {
	t.Parallel()
	const most = 40 // sandboxes
	db := testkit.Engines[1].Database(t)
	one := testkit.Start(t, db, "--sandbox", "--max-sandboxes", fmt.Sprint(most))
	two := testkit.Start(t, db, "--sandbox", "--max-sandboxes", fmt.Sprint(most))
	full, b := newBox(t, one, `{"seed":"empty"}`), newBox(t, one, "")
	there := testkit.Target{URL: two.URL, Token: b.Token}
	testkit.WantResponse(t, "a create", send(t, b.Target, "POST", "/plants", `{"id":99,"name":"x"}`), 200, `{"name":"x"}`)
	a := send(t, there, "GET", "/plants/99", "")
	testkit.WantResponse(t, "the plant at the other process", a, 200, `{"id":99,"name":"x"}`)
	send(t, b.Target, "PUT", "/faults", `[{"code":503}]`)
	here, other := send(t, b.Target, "GET", "/faults", ""), send(t, there, "GET", "/faults", "")
	ids := [2]string{here.Header.Get("Sandbox-Process"), other.Header.Get("Sandbox-Process")}
	if other.Body != "[]" || ids[0] == "" || ids[0] == ids[1] {
		t.Errorf("rules at the other process: %s, the processes are %q", other.Body, ids)
	}
	testkit.WantResponse(t, "DELETE /sandbox", send(t, there, "DELETE", "/sandbox", ""), 204, "")
	wantEnded(t, b)

	text := strings.Repeat("x", 60<<10)
	for id := range 17 {
		send(t, full.Target, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":%q}`, id, text))
	}
	testkit.WaitFor(t, "a process to write how much it stored", func() bool {
		return testkit.Query(t, db, "SELECT count(*) FROM sandboxes WHERE bytes > 1000000")[0][0] == "1"
	})
	full.URL = two.URL
	a = send(t, full.Target, "POST", "/plants", fmt.Sprintf(`{"id":-1,"name":%q}`, text))
	testkit.WantError(t, "a plant at the other process", a, 40035)

	for a.Number() != 50307 && !t.Failed() {
		a = post(t, one.URL, "")
	}
	more := 0
	for ; post(t, two.URL, "").Number() != 50307 && more < most/2; more++ {
		time.Sleep(time.Second) // It reads the sandboxes once a second.
	}
	if more == most/2 {
		t.Errorf("the other process creates %d more sandboxes", more)
	}
}

// A cluster has no sandboxes.
func TestCluster(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.AllEngines[len(testkit.Engines):] {
		t.Run(e.Name, func(t *testing.T) {
			_, errs, code := testkit.Run(t, nil, "serve", "--db", e.Database(t), "--listen", "127.0.0.1:0", "--sandbox")
			if code != 1 || !strings.Contains(errs, "--sandbox needs SQLite or PostgreSQL") {
				t.Errorf("exit %d, %s", code, errs)
			}
		})
	}
}
