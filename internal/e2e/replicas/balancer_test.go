package replicas

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

// balance starts the haproxy of the example before two servers and returns its address.
func balance(t *testing.T, one, two *testkit.Server) string {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		program = "/usr/sbin/haproxy" // not in every user's path
	}
	if _, err := os.Stat(program); err != nil {
		testkit.Unavailable(t, "no haproxy on this machine: install the package haproxy; `make test` does")
	}
	address := testkit.FreeAddress(t)
	text := testkit.ReplaceOnce(t, testkit.DeployFile(t, "haproxy.cfg"), "bind 127.0.0.1:8000", "bind "+address)
	for i, p := range []*testkit.Server{one, two} {
		ops := p.Ops[strings.LastIndexByte(p.Ops, ':')+1:]
		text = testkit.ReplaceOnce(t, text, fmt.Sprintf("127.0.0.1:80%d0 port 80%[1]d1", 8+i), strings.TrimPrefix(p.URL, "http://")+" port "+ops)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "-c", "-f", file).CombinedOutput(); err != nil || strings.Contains(string(out), "WARNING") {
		t.Fatalf("haproxy does not accept the example: %v\n%s", err, out)
	}
	testkit.Launch(t, exec.Command(program, "-db", "-f", file))
	return "http://" + address
}

// Behind the balancer of the example, a server that is killed and one that is stopped are hardly noticed, and
// every answer is an Error of the catalogue and true, those of the balancer too.
func TestBalancer(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	// What is started again finds its addresses free.
	var addresses [2][]string
	var all [2]*testkit.Server
	for i := range all {
		addresses[i] = []string{"--listen", testkit.FreeAddress(t), "--ops-listen", testkit.FreeAddress(t)}
		all[i] = testkit.Start(t, db, addresses[i]...)
		all[i].Token = all[0].Token
	}
	to := testkit.Target{URL: balance(t, all[0], all[1]), Token: all[0].Token}
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if a, err := send(to, `{"id":0,"name":"plant 0"}`); err == nil && a.Status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is created through the balancer")
		}
	}
	if a, err := send(to, `{"id":0,"name":"another"}`); err != nil || a.Number() != 40009 {
		t.Errorf("an id that is taken, through the balancer: %v %v", a, err)
	}
	if a := all[0].Do(t, "DELETE", "/plants/0", ""); a.Status != 204 {
		t.Errorf("remove: %d %s", a.Status, a.Body)
	}

	tr := drive(t, true, to)
	tr.await(calm, 20*time.Second)
	again := func(i int) {
		t.Helper()
		all[i] = testkit.Start(t, db, addresses[i]...)
		for deadline := time.Now().Add(30 * time.Second); all[i].Connections(t) == 0; time.Sleep(20 * time.Millisecond) { // it is asked each second
			if time.Now().After(deadline) {
				t.Fatal("the balancer does not use the server that was started again")
			}
		}
	}
	// lose ends one of the two and returns how many requests failed. Where the database stands still meanwhile, the other
	// is not ready either: only what fails twice fails.
	lose := func(i int, what string, end func(), most int) (n int) {
		t.Helper()
		for range 2 {
			before := tr.failed()
			end()
			tr.await(5*calm, 20*time.Second)
			if n = tr.failed() - before; n <= most {
				return n
			}
			t.Logf("%d requests failed when one of two servers was %s: %v", n, what, tr.count())
			again(i)
		}
		t.Errorf("%d requests failed when one of two servers was %s, want %d at most", n, what, most)
		return n
	}
	// One for each client at most, and for those whose second try is refused too.
	killed := lose(0, "killed", func() { all[0].Kill() }, 2*trafficClients)
	if !all[0].Running() {
		again(0)
	}
	stopped := lose(1, "stopped", func() {
		if code := all[1].Stop(); code != 0 {
			t.Errorf("stopped with %d", code)
		}
	}, trafficClients)
	t.Logf("%d requests failed at the kill, %d at the stop", killed, stopped)

	tr.stop()
	all[0].Kill()
	all[1].Kill()
	var a testkit.Response
	var err error
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		// Each connection that led to the killed server may first break.
		if a, err = send(to, `{"id":0,"name":"x"}`); err == nil && a.Number() == 50303 || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Errorf("without any server: %v", err)
	} else {
		testkit.WantError(t, "without any server", a, 50303)
	}
	tr.wantClean(db)
}

// failed counts the requests that brought no decision.
func (tr *traffic) failed() (n int) {
	for number, times := range tr.count() {
		if number == notAnswered || number/100 == 503 {
			n += times
		}
	}
	return n
}
