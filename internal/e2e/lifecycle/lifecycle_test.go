package lifecycle

import (
	"bufio"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

func TestHealth(t *testing.T) {
	testkit.OnEachEngine(t, func(t *testing.T, p *testkit.Server) {
		for path, want := range map[string]string{"/livez": "alive\n", "/readyz": "ready\n"} {
			if status, body := p.Health(t, path); status != 200 || body != want {
				t.Errorf("%s = %d %q", path, status, body)
			}
		}
		if status, _ := p.Health(t, "/plants"); status != 404 {
			t.Errorf("/plants on the ops port = %d", status)
		}
	})
}

func TestOpsOff(t *testing.T) {
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--ops-listen", "off")
	if p.Ops != "" || strings.Contains(p.Stderr.String(), `"health"`) {
		t.Errorf("a health listener with --ops-listen off: %s", p.Stderr)
	}
}

// On SIGTERM every request that has begun is answered: one whose headers are half there, one whose body is,
// on a new connection and on one that has served before, also when its begin came with the request before.
func TestDrain(t *testing.T) {
	testkit.OnEachEngine(t, func(t *testing.T, p *testkit.Server) {
		request := p.RawCreate
		type half struct {
			what string
			conn net.Conn
			rest string
		}
		var halves []half
		for i, cut := range []int{10, 60, len(request(1)) - 5} {
			for n, before := range []string{"nothing", "a request", "a request in the same packet"} {
				c := p.Dial(t)
				defer c.Close()
				text := request(10*i + n)
				first := text[:cut]
				if n == 2 {
					first = request(100+i) + first
				}
				if n == 1 {
					io.WriteString(c, request(100+i))
				} else {
					io.WriteString(c, first)
				}
				if n > 0 {
					if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
						t.Fatal(err)
					}
				}
				if n == 1 {
					io.WriteString(c, first)
				}
				halves = append(halves, half{fmt.Sprintf("%d bytes sent, before them %s", cut, before), c, text[cut:]})
			}
		}
		idle := p.Dial(t)
		defer idle.Close()
		waitRead(t, p)
		p.Signal(syscall.SIGTERM)
		waitStopping(t, p)
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			status, body := p.Health(t, "/readyz")
			if status == 503 && strings.Contains(body, "stopping") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("/readyz while stopping = %d %q", status, body)
			}
		}
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			c, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
			if err != nil {
				break
			}
			c.Close()
			if time.Now().After(deadline) {
				t.Fatal("a new connection is accepted while stopping")
			}
		}
		if n, err := idle.Read(make([]byte, 1)); n != 0 || err != io.EOF { // the time of those without a request is over
			t.Errorf("a connection without a request while stopping: %d bytes, %v, want its end", n, err)
		}
		for _, h := range halves {
			if _, err := io.WriteString(h.conn, h.rest); err != nil {
				t.Errorf("%s: %v", h.what, err)
				continue
			}
			response, err := http.ReadResponse(bufio.NewReader(h.conn), nil)
			if err != nil || response.StatusCode != 200 {
				t.Errorf("%s: %v, %v", h.what, response, err)
			} else if !response.Close {
				t.Errorf("%s: the answer does not say Connection: close", h.what)
			}
		}
		if code := p.WaitExit(); code != 0 {
			t.Errorf("exit %d\n%s", code, p.Stderr)
		}
	})
}

// waitRead waits until the server has accepted every connection and has read everything that was sent to it.
func waitRead(t *testing.T, p *testkit.Server) {
	t.Helper()
	testkit.WaitFor(t, "the server to read from its connections", func() bool {
		return !slices.ContainsFunc(p.Sockets(t), func(fields []string) bool {
			queues, inode := fields[4], fields[9]
			return !strings.HasSuffix(queues, ":00000000") || inode == "0" // Without an inode it is not accepted.
		})
	})
	time.Sleep(20 * time.Millisecond) // until the server has processed what it has read
}

// A client does not know that the service stops until it is told. So a connection that no request is on is kept for
// a second: a request that comes is answered, and the answer says that it is the last. Where nobody is
// connected, nobody is waited for.
func TestLinger(t *testing.T) {
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			// The machine itself may stop for a second. Only what is late each of three times is late.
			var late string
			for range 3 {
				if late = lingers(t, testkit.Start(t, e.Database(t))); late == "" {
					return
				}
				t.Log(late)
			}
			t.Error(late)
		})
	}
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"))
	silent := p.Dial(t)
	defer silent.Close()
	io.WriteString(silent, p.RawCreate(1))
	http.ReadResponse(bufio.NewReader(silent), nil)
	if code := p.Stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	if took := p.LoggedAt("stopped").Sub(p.LoggedAt("stopping")); took < 900*time.Millisecond || took > 5*time.Second { // with --drain 10s
		t.Errorf("a silent connection was kept for %v, want a second", took)
	}
}

// lingers stops a server that has connections without a request, and sends requests on them. It returns what was late,
// or was not answered, as is all that comes too late.
func lingers(t *testing.T, p *testkit.Server) (late string) {
	t.Helper()
	fresh, page, used := p.Dial(t), p.Dial(t), p.Dial(t) // the last is answered, so all are accepted
	for _, c := range []net.Conn{fresh, page, used} {
		defer c.Close()
	}
	io.WriteString(used, p.RawCreate(1))
	if response, err := http.ReadResponse(bufio.NewReader(used), nil); err != nil || response.Close {
		return fmt.Sprintf("before the stop: %v, %v", response, err)
	}
	p.Signal(syscall.SIGTERM)
	waitStopping(t, p)
	requests := map[string]struct {
		conn net.Conn
		text string
	}{
		"a new connection": {fresh, p.RawCreate(2)}, "a used connection": {used, p.RawCreate(3)},
		"a page": {page, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
	}
	var failed []error
	for what, r := range requests {
		if _, err := io.WriteString(r.conn, r.text); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		}
	}
	if sent := time.Since(p.LoggedAt("stopping")); sent > 700*time.Millisecond {
		return fmt.Sprintf("the requests were sent %v after the stop: this test is too slow for the second that it has", sent)
	}
	for what, r := range requests {
		in := bufio.NewReader(r.conn)
		response, err := http.ReadResponse(in, nil)
		if err != nil || response.StatusCode != 200 || !response.Close {
			failed = append(failed, fmt.Errorf("%s: %v, %w; want 200 and Connection: close", what, response, err))
			continue
		}
		io.Copy(io.Discard, response.Body)
		if _, err := in.ReadByte(); err != io.EOF {
			failed = append(failed, fmt.Errorf("%s: after the answer %w, want its end", what, err))
		}
	}
	ended := time.Now()
	if err := errors.Join(failed...); err != nil {
		return err.Error()
	}
	if code := p.WaitExit(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.Stderr)
	}
	if took := p.LoggedAt("stopped").Sub(ended); took > 500*time.Millisecond {
		return fmt.Sprintf("stopped %v after the last connection had ended, although nobody was connected any more", took)
	}
	return ""
}

func waitStopping(t *testing.T, p *testkit.Server) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); p.LoggedAt("stopping").IsZero(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server does not stop:\n%s", p.Stderr)
		}
	}
}

func TestDrainIsBounded(t *testing.T) {
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--drain", "300ms")
	c := p.Dial(t)
	defer c.Close()
	io.WriteString(c, "POST /plants HTTP/1.1\r\nHost: x\r\n")
	waitRead(t, p)
	start := time.Now()
	if code := p.Stop(); code != 1 || time.Since(start) < 250*time.Millisecond {
		t.Errorf("a request that never ends: exit %d after %v", code, time.Since(start))
	}
	if !strings.Contains(p.Stderr.String(), "cut off") {
		t.Errorf("nothing tells that a request was cut off:\n%s", p.Stderr)
	}
}

func TestSecondSignal(t *testing.T) {
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--drain", "1m")
	c := p.Dial(t)
	defer c.Close()
	io.WriteString(c, "POST /plants HTTP/1.1\r\nHost: x\r\n")
	waitRead(t, p)
	p.Signal(syscall.SIGINT)
	waitStopping(t, p)
	// One that comes before the first is handled to its end is taken for the same.
	for deadline := time.Now().Add(10 * time.Second); p.Running(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server has not ended after many signals\n%s", p.Stderr)
		}
		p.Signal(syscall.SIGINT)
	}
	if status := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGINT {
		t.Errorf("ended with %v, want to be ended by the second signal", p.Cmd.ProcessState)
	}
}

// What can go wrong at the start is one sentence and an exit code.
func TestStartFails(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	write := func(name, content string, mode os.FileMode) string {
		if err := os.WriteFile(path(name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path(name)
	}
	good := path("good.db")
	testkit.IssueToken(t, good, "--name", "x")
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	torn := append([]byte{}, content...)
	for i := 100; i < len(torn); i++ {
		torn[i] ^= 0x5a
	}
	free := []string{"--listen", "127.0.0.1:0", "--ops-listen", "off"}
	for _, test := range []struct {
		what string
		args []string
		code int
		want string
	}{
		{"port in use", []string{"--db", path("a.db"), "--listen", busy.Addr().String()}, 1, "in use"},
		{"ops port in use", []string{"--db", path("a.db"), "--listen", "127.0.0.1:0", "--ops-listen", busy.Addr().String()}, 1, "in use"},
		{"a folder as the database", append([]string{"--db", folder}, free...), 1, "directory"},
		{"a database in no folder", append([]string{"--db", path("no/such/x.db")}, free...), 1, "no such"},
		{"not a database", append([]string{"--db", write("text.db", strings.Repeat("not a database ", 100), 0o600)}, free...), 1, "damaged or is not"},
		{"a torn database", append([]string{"--db", write("torn.db", string(torn), 0o600)}, free...), 1, "damaged"},
		{"another kind of database", append([]string{"--db", "mysql://x/y"}, free...), 1, "mysql"},
		{"an unknown flag", []string{"--nope"}, 2, "nope"},
		{"an argument too many", []string{"now"}, 2, "now"},
		{"a wrong drain", []string{"--drain", "soon"}, 2, "soon"},
		{"a wrong access log", []string{"--access-log", "some"}, 2, "errors, all or off"},
		{"a wrong size", []string{"--max-body", "0"}, 2, "max-body"},
		{"too many connections", []string{"--max-conns", "1000000000000000000"}, 2, "max-conns"},
		{"no address", []string{"--listen", ""}, 2, "--listen"},
		{"no address for health", []string{"--ops-listen", ""}, 2, "--ops-listen"},
		{"no database", append([]string{"--db", ""}, free...), 1, "--db is empty"},
		{"a wrong origin", []string{"--cors-origins", "example"}, 2, "origin"},
		{"a wrong base URL", append([]string{"--db", path("a.db"), "--base-url", "plants.example"}, free...), 1, "base URL"},
		{"a base URL that is not clean", append([]string{"--db", path("a.db"), "--base-url", "http://h/a/../b"}, free...), 1, "base URL"},
		{"a base URL with two slashes", append([]string{"--db", path("a.db"), "--base-url", "http://h/a//b"}, free...), 1, "base URL"},
		{"a base URL with a query", append([]string{"--db", path("a.db"), "--base-url", "http://h/a?"}, free...), 1, "base URL"},
		{"an empty token file", append([]string{"--db", path("a.db"), "--token-file", write("blank", " \n", 0o600)}, free...), 1, "empty"},
		{"a token file that is not there", append([]string{"--db", path("a.db"), "--token-file", path("none")}, free...), 1, "no such"},
	} {
		out, errs, code := testkit.Run(t, nil, append([]string{"serve"}, test.args...)...)
		if code != test.code || !strings.Contains(errs, test.want) {
			t.Errorf("%s: exit %d, stderr %q; want exit %d and %q", test.what, code, errs, test.code, test.want)
		}
		said := 0
		for line := range strings.Lines(errs) {
			if !strings.HasPrefix(line, "{") { // not a record of the log
				said++
			}
		}
		if said != 1 || strings.Contains(out, "plant_") {
			t.Errorf("%s: %d sentences, stdout %q, stderr %q; want one sentence", test.what, said, out, errs)
		}
	}
	t.Setenv("PLANTSTORE_DRAIN", "never")
	if _, errs, code := testkit.Run(t, nil, "serve"); code != 2 || !strings.Contains(errs, "PLANTSTORE_DRAIN") {
		t.Errorf("a wrong value in the environment: exit %d, %q", code, errs)
	}
}

// The binary is one file that needs nothing of the machine, and knows its version.
func TestBinary(t *testing.T) {
	f, err := elf.Open(testkit.Binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary is not static")
		}
	}
	if out, _, _ := testkit.Run(t, nil, "version"); !strings.HasPrefix(out, "plantstore v0.0.0-test go") {
		t.Errorf("plantstore version prints %q", out)
	}
}

// The service continues when the reader of its log has closed the pipe.
func TestLogReaderCloses(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := testkit.Serve(filepath.Join(t.TempDir(), "plants.db"), "--ops-listen", "off")
	cmd.Stderr = write
	p := testkit.Launch(t, cmd)
	write.Close()
	p.WaitServing()
	read.Close()
	testkit.WantError(t, "a failure that can't be logged", p.Create(t, `{}`), 40011)
	testkit.WantResponse(t, "the next create", p.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
	}{{nil, 2}, {[]string{"help"}, 0}, {[]string{"-h"}, 0}, {[]string{"grow"}, 2}, {[]string{"token"}, 2}, {[]string{"serve", "-h"}, 0}, {[]string{"version"}, 0}, {[]string{"version", "x"}, 2}} {
		out, errs, code := testkit.Run(t, nil, test.args...)
		if code != test.code || (code == 0) != (out != "") || (code == 0) == (errs != "") {
			t.Errorf("plantstore %q: exit %d, stdout %q, stderr %q; want exit %d", test.args, code, out, errs, test.code)
		}
	}
}

func TestLog(t *testing.T) {
	testkit.OnEachEngine(t, func(t *testing.T, p *testkit.Server) {
		p.Create(t, `{"id":1,"name":"fine"}`)
		nasty := `{"id":"\u001b[31m\nlevel=ERROR msg=forged","name":"x"}`
		a := p.Do(t, "POST", "/plants", nasty, testkit.ContentJSON, "X-Request-Id: my-id.1")
		testkit.WantError(t, "nasty", a, 40013)
		if id := a.Header.Get("X-Request-Id"); id != "my-id.1" {
			t.Errorf("X-Request-Id %q, want the client's own", id)
		}
		if id := p.Do(t, "GET", "/nowhere%1b", "", "X-Request-Id: <script>").Header.Get("X-Request-Id"); id == "" || strings.Contains(id, "<") {
			t.Errorf("X-Request-Id %q for a strange one", id)
		}
		records := requestsLogged(t, p, 2, false)
		if len(records) != 2 {
			t.Fatalf("%d requests in the log, want the two that failed:\n%s", len(records), p.Stderr)
		}
		r := records[0]
		if r["error"] == 40402.0 { // a record is written after the answer, so the next may come before it
			r = records[1]
		}
		if r["id"] != "my-id.1" || r["route"] != "POST /plants" || r["status"] != 400.0 || r["error"] != 40013.0 || r["ms"] == nil {
			t.Errorf("the record of a failure: %v", r)
		}
		if strings.ContainsAny(p.Stderr.String(), "\x1b") {
			t.Error("an escape code stands in the log as it is")
		}
	})
}

// requestsLogged waits until the log has that many requests, and returns all that it has: a record is written after the
// answer. On a machine that stops for a second, requests that were well are logged as slow. They count where all do.
func requestsLogged(t *testing.T, p *testkit.Server, want int, all bool) (records []map[string]any) {
	t.Helper()
	find := func() (records []map[string]any) {
		for line := range strings.Lines(p.Stderr.String()) {
			var record map[string]any
			if err := json.Unmarshal([]byte(line), &record); err != nil && strings.HasSuffix(line, "\n") {
				t.Errorf("the line %q is no record: %v", line, err)
			}
			if record["msg"] != "request" {
				continue
			}
			status, _ := record["status"].(float64)
			took, _ := record["ms"].(float64)
			if all || status >= 400 || took < 1000 {
				records = append(records, record)
			}
		}
		return records
	}
	for deadline := time.Now().Add(10 * time.Second); len(find()) < want && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // one too many would come now
	return find()
}

func TestAccessLog(t *testing.T) {
	for mode, want := range map[string]int{"all": 2, "off": 0, "errors": 1} {
		p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--access-log", mode)
		p.Create(t, `{"id":1,"name":"x"}`)
		p.Create(t, `{}`)
		if got := requestsLogged(t, p, want, mode != "errors"); len(got) != want {
			t.Errorf("--access-log %s: %d records of two requests, want %d: %v", mode, len(got), want, got)
		}
	}
}

func TestFileMode(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	db := filepath.Join(t.TempDir(), "plants.db")
	p := testkit.Start(t, db)
	p.Create(t, `{"id":1,"name":"x"}`)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(db + suffix)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the mode of the file%s is %v, %v, want 0600", suffix, info.Mode(), err)
		}
	}
}

// A signal to stop is obeyed without a complaint at whatever moment of the start it comes.
func TestStopWhileStarting(t *testing.T) {
	start := func() *testkit.Server {
		return testkit.Launch(t, exec.Command(testkit.Binary, "serve", "--db", filepath.Join(t.TempDir(), "plants.db"), "--listen", "127.0.0.1:0", "--ops-listen", "off"))
	}
	began := time.Now()
	p := start()
	p.WaitListening()
	took := time.Since(began)
	if code := p.Stop(); code != 0 {
		t.Fatalf("exit %d after a whole start", code)
	}
	early := 0
	const moments = 40
	for n := range moments {
		p := start()
		time.Sleep(took * time.Duration(n) / moments) // the moment that is tested
		code := p.Stop()
		if status := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() && status.Signal() == syscall.SIGTERM {
			early++ // the process had not begun to listen to signals
			continue
		}
		if code != 0 {
			t.Errorf("the signal came after %v of about %v: exit %d\n%s", took*time.Duration(n)/moments, took, code, p.Stderr)
		}
	}
	if early == moments {
		t.Error("no start came as far as to listen to signals")
	}
}
