package replicas

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// balance starts haproxy with the example configuration in front of two servers and returns its address.
func balance(t *testing.T, one, two *testkit.Server) string {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		program = "/usr/sbin/haproxy" // which is not in every user's path
	}
	if _, err := os.Stat(program); err != nil {
		testkit.Unavailable(t, "haproxy is not installed")
	}
	address := testkit.FreeAddress(t)
	text := testkit.ReplaceOnce(t, testkit.DeployFile(t, "haproxy.cfg"), "bind 127.0.0.1:8000", "bind "+address)
	for i, p := range []*testkit.Server{one, two} {
		ops := p.Ops[strings.LastIndexByte(p.Ops, ':')+1:]
		address := strings.TrimPrefix(p.URL, "http://")
		text = testkit.ReplaceOnce(t, text, fmt.Sprintf("127.0.0.1:80%d0 port 80%[1]d1", 8+i), address+" port "+ops)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "-c", "-f", file).CombinedOutput()
	if err != nil || strings.Contains(string(out), "WARNING") {
		t.Fatalf("haproxy refuses the example: %v\n%s", err, out)
	}
	testkit.Launch(t, exec.Command(program, "-db", "-f", file))
	return "http://" + address
}

// Behind the example balancer, few requests fail when a server is killed or stopped, and every response is an Error of
// the catalogue and true, those of the balancer too.
func TestBalancer(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	b := startBalanced(t)
	testkit.WaitFor(t, "a create through the balancer", func() bool {
		a, err := b.to.Send("POST", "/plants", `{"id":0,"name":"plant 0"}`)
		return err == nil && a.Status == 200
	})
	if a, err := b.to.Send("POST", "/plants", `{"id":0,"name":"another"}`); err != nil || a.Number() != 40009 {
		t.Errorf("a taken id through the balancer: %v %v", a, err)
	}
	if a := b.servers[0].Do(t, "DELETE", "/plants/0", ""); a.Status != 204 {
		t.Errorf("remove: %d %s", a.Status, a.Body)
	}

	l := ledger.New()
	l.Balanced = true
	tr := traffic{l, l.Start(t, ledger.Options{Clients: trafficClients}, b.to)}
	tr.Wait(t, enoughCreates)
	// At most one for each client, and one for those whose retry fails too.
	killed := b.lose(tr, 0, "killed", func() { b.servers[0].Kill() }, 2*trafficClients)
	if !b.servers[0].Running() {
		b.restart(0)
	}
	stopped := b.lose(tr, 1, "stopped", func() {
		if code := b.servers[1].Stop(); code != 0 {
			t.Errorf("exit %d", code)
		}
	}, trafficClients)
	t.Logf("%d requests failed at the kill, %d at the stop", killed, stopped)

	tr.stop()
	b.servers[0].Kill()
	b.servers[1].Kill()
	var a testkit.Response
	testkit.WaitFor(t, "the balancer to report that there is no server", func() bool {
		var err error
		a, err = b.to.Send("POST", "/plants", `{"id":0,"name":"x"}`) // Connections to the killed servers break first.
		return err == nil && a.Number() == 50303
	})
	testkit.WantError(t, "without any server", a, 50303)
	tr.CheckMany(t, testkit.Target{URL: testkit.Start(t, b.db).URL, Token: b.to.Token})
}

// balanced is two servers behind a balancer.
type balanced struct {
	t         *testing.T
	db        string
	addresses [2][]string // flags, so that a restarted server has the same addresses
	servers   [2]*testkit.Server
	to        testkit.Target // the balancer
}

func startBalanced(t *testing.T) *balanced {
	t.Helper()
	b := &balanced{t: t, db: pgtest.Database(t)}
	for i := range b.servers {
		b.addresses[i] = []string{"--listen", testkit.FreeAddress(t), "--ops-listen", testkit.FreeAddress(t)}
		b.servers[i] = testkit.Start(t, b.db, b.addresses[i]...)
		b.servers[i].Token = b.servers[0].Token
	}
	b.to = testkit.Target{URL: balance(t, b.servers[0], b.servers[1]), Token: b.servers[0].Token}
	return b
}

// restart starts a server again and waits until the balancer uses it.
func (b *balanced) restart(i int) {
	b.t.Helper()
	b.servers[i] = testkit.Start(b.t, b.db, b.addresses[i]...)
	testkit.WaitFor(b.t, "the balancer to use a restarted server", func() bool {
		return b.servers[i].Connections(b.t) > 0
	})
}

// lose ends a server and returns how many requests failed. If the database pauses meanwhile, the other server is not
// ready either, so a failure is repeated once.
func (b *balanced) lose(tr traffic, i int, what string, end func(), most int) (n int) {
	b.t.Helper()
	for range 2 {
		before := tr.Failed()
		end()
		tr.Wait(b.t, 5*enoughCreates)
		if n = tr.Failed() - before; n <= most {
			return n
		}
		b.t.Logf("%d requests failed when one of two servers was %s: %v", n, what, tr.Responses())
		b.restart(i)
	}
	b.t.Errorf("%d requests failed when one of two servers was %s, want at most %d", n, what, most)
	return n
}
