//go:build linux

package overload

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/measure"
)

// confined starts the product with the shell's limits before it, in a group with this much memory, and on the first
// processor alone: load that is made on the others takes nothing from it.
func confined(t *testing.T, memory int64, limits string, args ...string) *testkit.Server {
	t.Helper()
	script := limits + " exec taskset -c 0 " + testkit.Binary + ` "$@"`
	if memory > 0 {
		script = "echo $$ >" + memoryGroup(t, memory) + " && " + script
	}
	if limits == "" && runtime.NumCPU() < 2 {
		testkit.Unavailable(t, "the server and its load need a processor each")
	}
	db := filepath.Join(t.TempDir(), "plants.db")
	p := testkit.Launch(t, exec.Command("sh", append([]string{"-c", script, "sh", "serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, args...)...))
	p.WaitUntilServing()
	return p
}

// memoryGroup makes a control group and returns the file that a process joins it with.
func memoryGroup(t *testing.T, limit int64) string {
	t.Helper()
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(root); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
		os.WriteFile(root+"/cgroup.subtree_control", []byte("+memory"), 0)
	}
	group, err := os.MkdirTemp(root, "plantstore-test-")
	if err == nil {
		t.Cleanup(func() {
			for range 100 { // the kernel lets go of it a moment after its last process
				if os.Remove(group) == nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Errorf("the group %s is still there", group)
		})
		err = os.WriteFile(filepath.Join(group, file), []byte(strconv.FormatInt(limit, 10)), 0)
	}
	if err != nil {
		testkit.Unavailable(t, "memory can't be limited here: %v", err)
	}
	return filepath.Join(group, "cgroup.procs")
}

func openFiles(t *testing.T, p *testkit.Server) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// issue makes another token.
func issue(t *testing.T, p *testkit.Server, name string) string {
	t.Helper()
	db := p.Cmd.Args[slices.Index(p.Cmd.Args, "--db")+1]
	out, stderr, code := testkit.Run(t, nil, "token", "issue", "--db", db, "--name", name)
	if code != 0 {
		t.Fatal(stderr)
	}
	return testkit.TokenPattern.FindString(out)
}

type report struct{ measure.Report }

func (r report) rate() float64 { return float64(r.Count) / r.Seconds }

// cpu is what the server used in the window.
func (r report) cpu() time.Duration {
	if len(r.Server) == 0 {
		return 0
	}
	return r.Server[0].CPU
}

func (r report) String() string {
	var refusals measure.Histogram
	for _, took := range r.Refusals {
		refusals.Record(took)
	}
	us := time.Microsecond
	return fmt.Sprintf("%.0f creates/s (p50 %v, p99 %v, %v of the server each), %.0f refused/s (p50 %v, p99 %v); "+
		"%d arrivals, %d sent, %d found no client free, %d not connected, %d broken, %d wrong, %d late %s",
		r.rate(), r.P50.Round(us), r.P99.Round(us), (r.cpu() / time.Duration(max(1, r.Count))).Round(us/10),
		float64(r.Refused)/r.Seconds, refusals.Quantile(0.5).Round(us), refusals.Quantile(0.99).Round(us),
		r.Arrivals, r.Sent, r.Unsent, r.Unconnected, r.Broken, r.Wrong, r.Late, r.Reason)
}

var loadCommand = sync.OnceValues(func() (string, error) {
	return testkit.BuildCommand("load", "plantstore/internal/testkit/load")
})

var nextIDs atomic.Int64

// load sends creates from a process of its own, on another processor.
func load(t *testing.T, p *testkit.Server, token string, args ...string) report {
	t.Helper()
	path, err := loadCommand()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "taskset", append([]string{"-c", "1", path,
		"-address", strings.TrimPrefix(p.URL, "http://"), "-token", token, "-pids", strconv.Itoa(p.Cmd.Process.Pid),
		"-first", strconv.FormatInt(nextIDs.Add(1)*1_000_000_000, 10)}, args...)...)
	if slices.Contains(args, "-poll") { // before other processes, as on a machine of its own
		cmd = exec.CommandContext(t.Context(), "chrt", append([]string{"--fifo", "1"}, cmd.Args...)...)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var r report
	if err := errors.Join(err, json.Unmarshal(out, &r)); err != nil {
		t.Errorf("load: %v %s", err, out)
	}
	return r
}

// At ten times what it can do the service goes on doing nearly as much as ever, refuses the rest at once,
// stays within its memory, and is as before when the load ends.
func TestOverload(t *testing.T) {
	// Next to other work times say little, so what is compared there is creates for each second that the server has
	// on its processor. On a machine that does nothing else both are the same.
	lasts, peakFor, clients, goodput, refusal, rounds := 3*time.Second, time.Second, 1500, 0.5, 5*time.Second, 1
	rate := func(r report) float64 { return float64(r.Count) / max(r.cpu().Seconds(), 0.01) }
	warm, urgent := "1s", []string(nil)
	if full := os.Getenv("PLANTSTORE_TEST_OVERLOAD"); full != "" {
		var err error
		if lasts, err = time.ParseDuration(full); err != nil {
			t.Fatal(err)
		}
		rounds = 10
		lasts /= time.Duration(rounds)
		peakFor, clients, goodput, refusal, rate = 1500*time.Millisecond, 2000, 0.85, 10*time.Millisecond, report.rate
		urgent = []string{"-poll"}
	}
	p := confined(t, 256<<20, "")
	capacity := load(t, p, p.Token, "-warm", "500ms", "-window", peakFor.String())
	t.Logf("64 clients, each waiting for its answers: %v", capacity)
	tenTimes := fmt.Sprint(10 * capacity.rate())
	// The peak is what the same load gets when all its clients are let in. The load takes its part of a machine whose
	// processors may be threads of one core, so one that waits for answers would not do to compare with.
	// The machine is not always the same either, so peak and overload take turns, and their ratio is that of the middle round.
	var all, overs, visitors []report
	var ratios []float64
	// Beside each somebody comes fifty times a second: the load is too busy to tell when it was answered.
	load := func(warm string, lasts time.Duration, clients int) (r, visitor report) {
		var visits sync.WaitGroup
		visits.Go(func() {
			visitor = load(t, p, p.Token, append(urgent, "-warm", warm, "-window", lasts.String(), "-clients", "100", "-rate", "50", "-once", "-stubborn")...)
		})
		r = load(t, p, p.Token, "-warm", warm, "-window", lasts.String(), "-clients", strconv.Itoa(clients), "-rate", tenTimes)
		visits.Wait()
		return r, visitor
	}
	peak := func() report {
		r, visitor := load("300ms", peakFor, 490)
		t.Logf("peak: %v", r)
		all = append(all, r, visitor)
		return r
	}
	before := peak()
	for range rounds {
		over, visitor := load(warm, lasts, clients)
		t.Logf("ten times as much: %v", over)
		t.Logf("somebody beside it: %v", visitor)
		t.Logf("back to normal after %v", waitRecovered(t, p).Round(time.Millisecond))
		after := peak()
		ratios = append(ratios, rate(over)/(rate(before)+rate(after))*2)
		overs, visitors, before = append(overs, over), append(visitors, visitor), after
	}
	high := p.Memory(t, "VmHWM")
	slices.Sort(ratios)
	t.Logf("goodput %.2f of the peak, median of %.2f; memory %d MiB at most", ratios[rounds/2], ratios, high>>20)

	if ratios[rounds/2] < goodput {
		t.Errorf("goodput %.2f of the peak, want %.2f", ratios[rounds/2], goodput)
	}
	var refusals []time.Duration
	for i, visitor := range visitors {
		if overs[i].Refused == 0 || visitor.Refused == 0 {
			t.Fatalf("%d and %d refused, want some", overs[i].Refused, visitor.Refused)
		}
		refusals = append(refusals, visitor.Refusals...)
	}
	took := p99(t, refusals)
	t.Logf("%d refusals, p99 %v", len(refusals), took.Round(time.Microsecond))
	if took > refusal {
		t.Errorf("refusals took %v (p99), want %v at most", took, refusal)
	}
	if high > 200<<20 {
		t.Errorf("memory reached %d MiB, want 200 at most", high>>20)
	}
	for _, r := range slices.Concat(all, overs, visitors, []report{capacity}) {
		if r.Broken+r.Wrong+r.Late > 0 {
			t.Errorf("not every request was answered 200, or 503 as it should be: %v", r)
		}
	}
	if !p.Running() {
		t.Fatal("the server has ended")
	}
}

// waitRecovered waits until who comes finds the service as it was before the load, and returns how long that took.
func waitRecovered(t *testing.T, p *testkit.Server) time.Duration {
	t.Helper()
	ended, patience := time.Now(), testkit.NewPatience(2*time.Second)
	for ; ; time.Sleep(10 * time.Millisecond) {
		start := time.Now()
		fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, _ := http.NewRequest("GET", p.URL+"/plants/1", nil)
		r.Header.Set("Authorization", "Bearer "+p.Token)
		response, err := fresh.Do(r)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == 404 && time.Since(start) < 500*time.Millisecond {
				return time.Since(ended)
			}
		}
		if patience.Over() {
			t.Fatalf("2 s after the load a read is still refused or slow: %v %v", response, err)
		}
	}
}

// A token that takes all it can get leaves others their part: whoever is connected is served, and whoever comes
// gets in.
func TestGreedyToken(t *testing.T) {
	p := confined(t, 0, "", "--max-conns", "64")
	modest, late := issue(t, p, "modest"), issue(t, p, "late")
	peak := load(t, p, p.Token, "-warm", "200ms", "-window", "500ms")
	if again := load(t, p, p.Token, "-window", "500ms"); again.rate() > peak.rate() { // the machine may have stood still
		peak = again
	}
	var both sync.WaitGroup
	var greedy, small report
	both.Go(func() {
		small = load(t, p, modest, "-clients", "4", "-rotate", "-rate", fmt.Sprint(min(100, 0.05*peak.rate())), "-window", "3500ms")
	})
	time.Sleep(500 * time.Millisecond) // until those are connected
	both.Go(func() {
		greedy = load(t, p, p.Token, "-clients", "300", "-rate", fmt.Sprint(10*peak.rate()), "-window", "3s")
	})
	time.Sleep(500 * time.Millisecond) // of load, before somebody else comes
	start, tries := time.Now(), 0
	var in time.Duration
	for in == 0 && time.Since(start) < 2500*time.Millisecond {
		tries++
		r, _ := http.NewRequest("GET", p.URL+"/plants/1", nil)
		r.Header.Set("Authorization", "Bearer "+late)
		if response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r); err == nil {
			response.Body.Close()
			if response.StatusCode == 404 {
				in = time.Since(start)
			} else if response.StatusCode != 503 {
				t.Errorf("somebody who comes is answered %d", response.StatusCode)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	both.Wait()
	t.Logf("greedy: %v", greedy)
	t.Logf("modest: %v", small)
	t.Logf("somebody else was in after %v and %d tries", in, tries)
	if in == 0 {
		t.Errorf("nobody else got in, with %d tries", tries)
	}
	if greedy.Refused == 0 {
		t.Error("the greedy token was never refused: this was no overload")
	}
	// Its four clients may each be refused once, where this machine stands still for so long that they have to connect again.
	if small.Count+4 < small.Sent*9/10 || small.Sent < int64(small.Arrivals)/4 || small.P99 > 5*time.Second {
		t.Errorf("the modest token had %d of %d creates stored, %d sent, p99 %v", small.Count, small.Arrivals, small.Sent, small.P99)
	}
	if n := small.Broken + small.Wrong + small.Late + greedy.Broken + greedy.Wrong + greedy.Late; n > 0 {
		t.Errorf("%d requests without a right answer", n)
	}
}

// connectIdle makes connections that ask nothing.
func connectIdle(t *testing.T, p *testkit.Server, n int) {
	t.Helper()
	address := strings.TrimPrefix(p.URL, "http://")
	var dials sync.WaitGroup
	var failed atomic.Int64
	for worker := range 8 {
		dials.Go(func() {
			for i := worker; i < n; i += 8 {
				c, err := net.DialTimeout("tcp", address, 30*time.Second)
				if err != nil {
					failed.Add(1)
					continue
				}
				t.Cleanup(func() { c.Close() })
			}
		})
	}
	dials.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d connections could not be made", failed.Load(), n)
	}
}

// work creates and reads until stop is closed, once at least, now and then on a new connection, and returns how long
// each took.
// A refusal is tried again, as Retry-After asks, but at once. One that was there before the request was written, as
// on a machine so busy that this took longer than the door waits, is an error to the client's library, and a refusal.
// So is the end of a connection that was long idle, as it is where this process stands still: the server may end it.
func work(t *testing.T, p *testkit.Server, first int, stop chan struct{}) (took []time.Duration) {
	c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{}}
	var last, now time.Time // when the last request and this one began
	for id := first; ; id++ {
		if id%50 == 0 {
			c.CloseIdleConnections()
		}
		start := time.Now()
		for _, method := range []string{"POST", "GET"} {
			for {
				path, body := "/plants", fmt.Sprintf(`{"id":%d,"name":"Fern"}`, id)
				if method == "GET" {
					path, body = "/plants?limit=2&after="+strconv.Itoa(id-1), ""
				}
				r, _ := http.NewRequest(method, p.URL+path, strings.NewReader(body))
				r.Header.Set("Authorization", "Bearer "+p.Token)
				r.Header.Set("Content-Type", "application/json")
				var asked, stale atomic.Bool
				last, now = now, time.Now()
				before := last
				r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
					GotConn: func(g httptrace.GotConnInfo) { stale.Store(g.Reused) },
					WroteRequest: func(w httptrace.WroteRequestInfo) {
						asked.Store(w.Err == nil)
						stale.Store(stale.Load() && time.Since(before) > testkit.LongIdle)
					},
				}))
				response, err := c.Do(r)
				if err != nil && (!asked.Load() || stale.Load()) && time.Since(start) < 10*time.Second {
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", method, err)
					return took
				}
				answer, _ := io.ReadAll(response.Body)
				response.Body.Close()
				if response.StatusCode == 503 && strings.Contains(string(answer), "50301") && time.Since(start) < 10*time.Second {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				if response.StatusCode != 200 {
					t.Errorf("%s: %d %s", method, response.StatusCode, answer)
				}
				break
			}
		}
		took = append(took, time.Since(start))
		select {
		case <-stop:
			return took
		default:
		}
	}
}

func p99(t *testing.T, took []time.Duration) time.Duration {
	t.Helper()
	if len(took) == 0 {
		t.Fatal("nothing was done that could be measured")
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// Ten thousand connections that ask nothing take no more memory than the bound on connections allows, and nothing
// from a client that works.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	const idle = 10_000
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < idle+500 {
		testkit.Unavailable(t, "%d connections need as many files, and there may be %d", idle, files.Cur)
	}
	p := confined(t, 0, "", "--max-conns", "1000")
	stop := make(chan struct{})
	alone := make(chan []time.Duration)
	go func() { alone <- work(t, p, 1, stop) }()
	time.Sleep(time.Second) // of work alone, to compare with
	close(stop)
	before, memory := p99(t, <-alone), p.Memory(t, "VmRSS")

	stop = make(chan struct{})
	go func() { alone <- work(t, p, 1_000_000, stop) }()
	connectIdle(t, p, idle)
	open := openFiles(t, p)
	for patience := time.Now().Add(10 * time.Second); open > 1200 && time.Now().Before(patience); open = openFiles(t, p) {
		time.Sleep(10 * time.Millisecond) // who was refused is still reading why
	}
	close(stop)
	beset := p99(t, <-alone)
	grown := p.Memory(t, "VmRSS") - memory
	t.Logf("p99 %v, next to %d connections %v; %d MiB and %d files of the server", before, idle, beset, grown>>20, open)
	if open < 500 || open > 1200 {
		t.Errorf("the server has %d files open, want about 1000", open)
	}
	if grown > 64<<20 {
		t.Errorf("%d connections take %d MiB", idle, grown>>20)
	}
	if beset > 20*before+2*time.Second {
		t.Errorf("a create and a read take %v (p99), %v without the connections", beset, before)
	}
}

// With 64 files the service has some for its database whoever comes, and makes room for those who work.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	p := confined(t, 0, "ulimit -n 64;")
	stop := make(chan struct{})
	done := make(chan []time.Duration)
	for worker := range 4 {
		go func() { done <- work(t, p, 1+worker*1_000_000, stop) }()
	}
	connectIdle(t, p, 300)
	// Those that were let in have been idle for a second: from now on they give way.
	until := time.Now().Add(2 * time.Second)
	busy := processorTime(t, p.Cmd.Process.Pid)
	var most int
	for time.Now().Before(until) {
		most = max(most, openFiles(t, p))
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	var took []time.Duration
	for range 4 {
		took = append(took, <-done...)
	}
	slow := p99(t, took)
	t.Logf("%d creates and reads, p99 %v, max %v; %d files at most, %v of processor while it worked", len(took), slow, slices.Max(took), most, processorTime(t, p.Cmd.Process.Pid)-busy)
	if slow > 5*time.Second {
		t.Errorf("a create and a read take %v (p99)", slow)
	}
	if most < 32 || most > 60 {
		t.Errorf("%d files are open at most, want it to be full, and some left for the database", most)
	}
	p.WaitReady(t, true, 5*time.Second)
	for _, sign := range []string{`"error":5000`, `"error":5030[2-9]`, "unable to open", "too many open files"} {
		if found := regexp.MustCompile(`.*` + sign + `.*`).FindString(p.Stderr.String()); found != "" {
			t.Errorf("for lack of files: %s", found)
		}
	}

	// Full of requests that do not end, it refuses without working, until those have had their time.
	ask := func() string {
		c := p.Dial(t)
		defer c.Close()
		// A refusal may be there before the request is sent.
		io.WriteString(c, "GET /plants/1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+p.Token+"\r\n\r\n")
		all, _ := io.ReadAll(c)
		return string(all)
	}
	var refusal string
	for full := time.Now(); !strings.HasPrefix(refusal, "HTTP/1.1 503 "); refusal = ask() {
		if time.Since(full) > 20*time.Second {
			t.Fatalf("it is not full: %q", refusal)
		}
		for range 30 { // more than it has room for, and at once: it gives them two seconds
			c := p.Dial(t)
			t.Cleanup(func() { c.Close() })
			io.WriteString(c, "POST /plants HTTP/1.1\r\nHost: x\r\n")
		}
	}
	if !strings.Contains(refusal, "\r\nRetry-After: 1\r\n") || !strings.Contains(refusal, `{"error":50301,`) {
		t.Errorf("who finds no room is answered %q", refusal)
	}
	for try := 1; ; try++ { // what it still does for those who were refused may be seen at first
		start, used := time.Now(), processorTime(t, p.Cmd.Process.Pid)
		time.Sleep(500 * time.Millisecond)
		used = processorTime(t, p.Cmd.Process.Pid) - used
		took := time.Since(start)
		if used <= took/10 {
			break
		}
		if try == 5 {
			t.Errorf("full, and with nothing to do, it works for %v of %v", used, took)
			break
		}
	}
	full := time.Now()
	for answer := ask(); !strings.HasPrefix(answer, "HTTP/1.1 200 "); answer = ask() {
		if time.Since(full) > 20*time.Second {
			t.Fatalf("slow requests have not given way: %q", answer)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')'):]))
	user, _ := strconv.Atoi(fields[12])
	system, _ := strconv.Atoi(fields[13])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// Bodies that together are more than the memory there is are refused in time, and what is held fits.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	p := confined(t, 256<<20, "", "--max-body", "1048576")
	const clients = 300
	body := `{"id":1,"name":"` + strings.Repeat("x", 1<<20-100) + `"}`
	head := fmt.Sprintf("POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", p.Token, len(body))
	var sending sync.WaitGroup
	var stored, refused atomic.Int64
	begun := make(chan struct{})
	sent := make(chan struct{}, clients)
	for range clients {
		c := p.Dial(t)
		sending.Go(func() {
			c.SetDeadline(time.Now().Add(25 * time.Second))
			io.WriteString(c, head+body[:len(body)-1]) // one that is refused may be cut off here
			sent <- struct{}{}
			<-begun // all are under way
			io.WriteString(c, body[len(body)-1:])
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("no answer: %v", err)
				return
			}
			text, _ := io.ReadAll(answer.Body)
			switch {
			case answer.StatusCode == 200:
				stored.Add(1)
			case answer.StatusCode == 503 && strings.Contains(string(text), `{"error":50301,`):
				refused.Add(1)
			default:
				t.Errorf("answered %d %.200s", answer.StatusCode, text)
			}
		})
	}
	for range clients {
		<-sent
	}
	close(begun)
	sending.Wait()
	t.Logf("%d stored, %d refused; memory %d MiB at most", stored.Load(), refused.Load(), p.Memory(t, "VmHWM")>>20)
	if stored.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d stored and %d refused, want some of each", stored.Load(), refused.Load())
	}
	if high := p.Memory(t, "VmHWM"); high > 200<<20 {
		t.Errorf("memory reached %d MiB, want 200 at most", high>>20)
	}
	if a := p.Create(t, `{"id":2,"name":"Fern"}`); a.Status != 200 {
		t.Errorf("afterwards a create is answered %d %s", a.Status, a.Body)
	}
}
