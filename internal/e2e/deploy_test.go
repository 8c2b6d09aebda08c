package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"plantstore/internal/store/postgres/pgtest"
)

func example(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replaceOnce replaces a text that must be there once.
func replaceOnce(t *testing.T, text, from, to string) string {
	t.Helper()
	if n := strings.Count(text, from); n != 1 {
		t.Fatalf("%q stands %d times in the example, want once", from, n)
	}
	return strings.Replace(text, from, to, 1)
}

// balance starts the haproxy of the example before two servers and returns its address.
func balance(t *testing.T, one, two *process) string {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		program = "/usr/sbin/haproxy" // not in every user's path
	}
	if _, err := os.Stat(program); err != nil {
		lacking(t, "no haproxy on this machine: install the package haproxy; `make test` does")
	}
	address := quietAddress(t)
	text := replaceOnce(t, example(t, "haproxy.cfg"), "bind 127.0.0.1:8000", "bind "+address)
	for i, p := range []*process{one, two} {
		ops := p.ops[strings.LastIndexByte(p.ops, ':')+1:]
		text = replaceOnce(t, text, fmt.Sprintf("127.0.0.1:80%d0 port 80%[1]d1", 8+i), strings.TrimPrefix(p.url, "http://")+" port "+ops)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "-c", "-f", file).CombinedOutput(); err != nil || strings.Contains(string(out), "WARNING") {
		t.Fatalf("haproxy does not accept the example: %v\n%s", err, out)
	}
	launch(t, exec.Command(program, "-db", "-f", file))
	return "http://" + address
}

// Behind the balancer of the example, a server that is killed and one that is stopped are hardly noticed, and
// every answer is an Error of the catalogue and true, those of the balancer too.
func TestBalancer(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	// What is started again finds its addresses free.
	var addresses [2][]string
	var all [2]*process
	for i := range all {
		addresses[i] = []string{"--listen", quietAddress(t), "--ops-listen", quietAddress(t)}
		all[i] = serve(t, db, addresses[i]...)
		all[i].token = all[0].token
	}
	to := target{balance(t, all[0], all[1]), all[0].token}
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if a, err := send(to, `{"id":0,"name":"plant 0"}`); err == nil && a.status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is created through the balancer")
		}
	}
	if a, err := send(to, `{"id":0,"name":"another"}`); err != nil || a.number() != 40009 {
		t.Errorf("an id that is taken, through the balancer: %v %v", a, err)
	}
	if a := all[0].ask(t, "DELETE", "/plants/0", ""); a.status != 204 {
		t.Errorf("remove: %d %s", a.status, a.body)
	}

	tr := drive(t, true, to)
	tr.await(calm, 20*time.Second)
	again := func(i int) {
		t.Helper()
		all[i] = serve(t, db, addresses[i]...)
		for deadline := time.Now().Add(30 * time.Second); all[i].connections(t) == 0; time.Sleep(20 * time.Millisecond) { // it is asked each second
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
	killed := lose(0, "killed", func() { all[0].kill() }, 2*trafficClients)
	if !all[0].running() {
		again(0)
	}
	stopped := lose(1, "stopped", func() {
		if code := all[1].stop(15 * time.Second); code != 0 {
			t.Errorf("stopped with %d", code)
		}
	}, trafficClients)
	t.Logf("%d requests failed at the kill, %d at the stop", killed, stopped)

	tr.stop()
	all[0].kill()
	all[1].kill()
	var a answer
	var err error
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		// Each connection that led to the killed server may first break.
		if a, err = send(to, `{"id":0,"name":"x"}`); err == nil && a.number() == 50303 || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Errorf("without any server: %v", err)
	} else {
		wantFailure(t, "without any server", a, 50303)
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

// Every flag and variable that the examples use is one of serve.
func TestExamplesUseFlagsThatExist(t *testing.T) {
	help, _, code := plantstore(t, nil, "serve", "-h")
	if code != 0 {
		t.Fatal(code)
	}
	used := regexp.MustCompile(`--[a-z-]+\b|PLANTSTORE_[A-Z_]+`)
	for name, least := range map[string]int{"plantstore.service": 2, "Containerfile": 3} {
		found := 0
		for line := range strings.Lines(example(t, name)) {
			if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "COPY") {
				continue
			}
			for _, word := range used.FindAllString(line, -1) {
				found++
				if !regexp.MustCompile(regexp.QuoteMeta(word) + `\b`).MatchString(help) {
					t.Errorf("%s uses %s, which serve does not know", name, word)
				}
			}
		}
		if found < least {
			t.Errorf("%s uses %d flags and variables, want %d at least: is it read well?", name, found, least)
		}
	}
}

func TestUnit(t *testing.T) {
	unit := example(t, "plantstore.service")
	if !strings.Contains(unit, "--drain 10s") || !strings.Contains(unit, "TimeoutStopSec=30") {
		t.Error("the time to stop is not known to be longer than the time to drain")
	}
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("the unit is only read: there is no systemd-analyze on this machine")
		return
	}
	folder := t.TempDir()
	socket := filepath.Join(folder, "plantstore.socket")
	file := filepath.Join(folder, "plantstore.service")
	for path, text := range map[string]string{
		file: replaceOnce(t, unit, "/usr/local/bin/plantstore", binary), socket: example(t, "plantstore.socket"),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(program, "verify", file, socket).CombinedOutput(); err != nil || strings.Contains(string(out), "plantstore.") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// The socket unit holds the address that serve has by default, under a name that serve knows, and what systemd itself
// passes on is taken.
func TestSocketUnit(t *testing.T) {
	unit := example(t, "plantstore.socket")
	if help, _, _ := plantstore(t, nil, "serve", "-h"); !strings.Contains(unit, "\nListenStream=127.0.0.1:8080\n") || !strings.Contains(help, "default 127.0.0.1:8080") {
		t.Error("the socket unit and serve have different addresses")
	}
	if !strings.Contains(unit, "\nFileDescriptorName=http\n") {
		t.Error("the socket has no name that serve knows")
	}
	program, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		t.Log("the unit is only read: there is no systemd-socket-activate on this machine")
		return
	}
	address := quietAddress(t)
	p := launch(t, exec.Command(program, "--listen="+address, "--fdname=http", binary, "serve",
		"--db", filepath.Join(t.TempDir(), "plants.db"), "--listen", "192.0.2.1:1", "--ops-listen", "off"))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil { // which starts the service
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("systemd-socket-activate does not listen")
		}
	}
	p.waitUntilServing()
	if p.url != "http://"+address {
		t.Errorf("serves %s, want the socket that was passed on, %s", p.url, address)
	}
	wantAnswer(t, "through a socket of systemd", p.create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
}
