package overload

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

var slowFor = flag.Duration("slow", 0,
	"how long TestSlowClients runs; past 70 s it also checks that slow clients are disconnected")

const (
	slowClients = 150 // of each kind
	maxMemory   = 256 << 20
)

// Hundreds of clients that send headers, send bodies and read responses a few bytes at a time do not keep others from
// being served, and the memory that they use is bounded.
func TestSlowClients(t *testing.T) {
	testkit.Long(t)
	program, err := exec.LookPath("slowhttptest")
	if err != nil {
		testkit.Unavailable(t, "slowhttptest is not installed")
	}
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"))
	large := strings.Repeat("x", 60_000)
	for id := range 20 {
		p.Create(t, fmt.Sprintf(`{"id":%d,"name":%q}`, -id-1, large))
	}
	alone := latency(t, p)

	length := max(60, int(slowFor.Seconds())+30)
	// The tool can send a credential only in its option for a cookie.
	launched, credential := time.Now(), "a=b\r\nAuthorization: Bearer "+p.Token
	for _, args := range [][]string{
		{"-H", "-u", p.URL + "/plants"},
		{"-B", "-u", p.URL + "/plants", "-f", "application/json", "-s", "8192", "-j", credential},
		{"-X", "-u", p.URL + "/plants?limit=1000", "-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-j", credential},
	} {
		testkit.Launch(t,
			exec.Command(program,
				append(args, "-c", strconv.Itoa(slowClients), "-r", strconv.Itoa(slowClients), "-i", "5", "-l",
					strconv.Itoa(length))...))
	}
	testkit.WaitFor(t, "the slow clients to connect", func() bool { return p.Connections(t) >= 3*slowClients })
	during, first := latency(t, p), p.Memory(t, "VmRSS")
	// After 30 s they are disconnected.
	if n := p.Connections(t); n < 3*slowClients*9/10 && time.Since(launched) < 20*time.Second {
		t.Errorf("%d connections are left of %d: want nearly all during the measurement", n, 3*slowClients)
	}
	again, second := latency(t, p), p.Memory(t, "VmRSS")
	// The comparison is for make slow, on an otherwise idle machine. Only a difference in each of three rounds counts.
	if most := 10*alone + 200*time.Millisecond; *slowFor > 0 && min(during, again) > most {
		if third := latency(t, p); third > most {
			t.Errorf("p99 of another client is %v, %v and %v next to slow ones, want at most %v", during, again, third, most)
		}
	}
	if second > maxMemory || second > first*3/2 && second > maxMemory/2 { // Growth below half of the limit is accepted.
		t.Errorf("%d MiB and then %d MiB in use next to slow clients", first>>20, second>>20)
	}
	t.Logf("p99 %v alone, %v and %v next to %d slow clients; %d MiB", alone, during, again, 3*slowClients, second>>20)

	if *slowFor > 70*time.Second {
		// One connection is that of this test, and others may be probes of the tool.
		for deadline := time.Now().Add(*slowFor); p.Connections(t) > 3; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d connections are left after %v", p.Connections(t), *slowFor)
			}
		}
		t.Logf("all disconnected; p99 %v, %d MiB", latency(t, p), p.Memory(t, "VmRSS")>>20)
	}
	wantCleanLog(t, p)
}

// latency sends requests one after the other, each on a new connection, and returns the time that 99 of 100 stay below.
// On a slow machine it sends fewer, since the slow clients stay for only half a minute.
func latency(t *testing.T, s *testkit.Server) time.Duration {
	t.Helper()
	const most, least, lasts = 300, 50, 8 * time.Second
	l := ledger.New()
	stop := l.Start(t, ledger.Options{Clients: 1, NewConns: true}, s.Target())
	start := time.Now()
	testkit.WaitFor(t, "requests of another client", func() bool {
		n := len(l.Times())
		return n >= most || n >= least && time.Since(start) > lasts
	})
	stop()
	if n := l.Failed(); n > 0 {
		t.Fatalf("%d requests of another client failed: %v", n, l.Responses())
	}
	return l.Times().Quantile(0.99).Round(time.Microsecond)
}
