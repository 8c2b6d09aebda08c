package client

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/webhook"
	"plantstore/test/testkit"
)

// receiver records requests, and responds with 500 to some plants.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []received
}

type received struct {
	header http.Header
	body   string
	status int
}

// startReceiver starts a receiver that fails twice for a body, and then until another has arrived.
func startReceiver(t *testing.T, failing, until string) *receiver {
	r := new(receiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		status := http.StatusNoContent
		if string(body) == failing && (len(r.of(failing)) < 2 || len(r.of(until)) == 0) {
			status = http.StatusInternalServerError
		}
		r.requests = append(r.requests, received{request.Header, string(body), status})
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// of returns the requests with a body.
func (r *receiver) of(body string) (all []received) {
	for _, request := range r.requests {
		if request.body == body {
			all = append(all, request)
		}
	}
	return all
}

// wait waits until a body was received with success, and returns all of its requests.
func (r *receiver) wait(t *testing.T, body string) (all []received) {
	t.Helper()
	testkit.WaitFor(t, "the receiver to accept "+body, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		all = r.of(body)
		return len(all) > 0 && all[len(all)-1].status == http.StatusNoContent
	})
	return all
}

var printedEndpoint = regexp.MustCompile(`^Endpoint: (wh_\w+)\nSecret: (whsec_\S+)\n\n`)

// listen starts plantstore listen and returns the endpoint and the secret that it prints.
func listen(t *testing.T, p *testkit.Server, args ...string) (l *testkit.Server, endpoint, secret string) {
	t.Helper()
	cmd := exec.Command(testkit.Binary, append([]string{"listen"}, args...)...)
	cmd.Env = append(os.Environ(), "PLANTSTORE_URL="+p.URL, "PLANTSTORE_TOKEN="+p.Token)
	l = testkit.Launch(t, cmd)
	var m []string
	testkit.WaitFor(t, "the endpoint", func() bool {
		m = printedEndpoint.FindStringSubmatch(l.Stdout.String())
		return m != nil || !l.Running()
	})
	if m == nil {
		t.Fatalf("listen %q printed %s%s", args, l.Stdout, l.Stderr)
	}
	return l, m[1], m[2]
}

func wantEndpoints(t *testing.T, p *testkit.Server, want string) {
	t.Helper()
	all, err := newClient(t, p).Webhooks(t.Context())
	got := []string{}
	for _, w := range all {
		got = append(got, fmt.Sprint(w.ID, " ", w.TTL, " ", w.Description))
	}
	if fmt.Sprint(got) != want || err != nil {
		t.Errorf("the endpoints are %v (%v), want %s", got, err, want)
	}
}

func interrupt(t *testing.T, l *testkit.Server, signal syscall.Signal) {
	t.Helper()
	l.Signal(signal)
	if code := l.WaitExit(); code != 0 {
		t.Errorf("listen after %v: exit %d, %s", signal, code, l.Stderr)
	}
}

const plantBody = `{"id":%d,"name":"Fern"}`

func create(t *testing.T, p *testkit.Server, id int) (body string) {
	t.Helper()
	body = fmt.Sprintf(plantBody, id)
	p.Create(t, body)
	return body
}

// Each plant is forwarded in a signed request, also if it was created while listen was not running. A request that
// fails is sent again, and others do not wait for it.
func TestListenForwards(t *testing.T) {
	t.Parallel()
	testkit.OnEachEngine(t, func(t *testing.T, p *testkit.Server) {
		failing := fmt.Sprintf(plantBody, 2)
		r := startReceiver(t, failing, fmt.Sprintf(plantBody, 3))
		args := []string{"--name", "laptop", "--forward-to", r.URL + "/hook"}
		l, endpoint, secret := listen(t, p, args...)
		for id := 1; id <= 3; id++ {
			create(t, p, id)
		}
		tries := r.wait(t, failing)
		if len(tries) < 3 || len(r.wait(t, fmt.Sprintf(plantBody, 1))) != 1 {
			t.Errorf("plant 2 was sent %d times: %s", len(tries), l.Stderr)
		}
		for _, try := range tries {
			h := try.header
			err := webhook.Verify(secret, h, []byte(try.body), time.Now())
			if err != nil || h.Get("Webhook-Id") != tries[0].header.Get("Webhook-Id") || h.Get("Webhook-Topic") !=
				"plant.created" || h.Get("Content-Type") != "application/json" ||
				!strings.HasPrefix(h.Get("User-Agent"), "PlantStore/") {
				t.Errorf("the headers are %v: %v", h, err)
			}
		}
		if r.requests[len(r.requests)-1].body != failing || len(r.requests) != len(tries)+2 {
			t.Errorf("the order is %+v, want plant 2 last", r.requests)
		}
		n := strings.Count(l.Stderr.String(), "/hook returned 500 Internal Server Error; trying again in ")
		if n != len(tries)-1 {
			t.Errorf("%d failures were printed: %s", n, l.Stderr)
		}
		testkit.WaitFor(t, "three events", func() bool { return strings.Count(l.Stdout.String(), "\nmsg_") == 3 })
		interrupt(t, l, syscall.SIGINT)
		wantEndpoints(t, p, "["+endpoint+" 604800 laptop]")

		missed := create(t, p, 4)
		l, again, rotated := listen(t, p, args...)
		if got := r.wait(t, missed); again != endpoint || rotated == secret || len(got) != 1 ||
			webhook.Verify(rotated, got[0].header, []byte(missed), time.Now()) != nil {
			t.Errorf("after a restart: endpoint %s, want %s; requests %v", again, endpoint, got)
		}
		interrupt(t, l, syscall.SIGTERM)

		own := webhook.NewSecret()
		l, again, printed := listen(t, p, append(args, "--secret", own)...)
		mine := create(t, p, 5)
		if got := r.wait(t, mine); again != endpoint || printed != own ||
			webhook.Verify(own, got[0].header, []byte(mine), time.Now()) != nil {
			t.Errorf("with --secret: endpoint %s, secret %s, headers %v", again, printed, got[0].header)
		}
		interrupt(t, l, syscall.SIGINT)
	})
}

// Plants are forwarded also while more than one pull returns fail.
func TestListenPassesFailures(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, testkit.Engines[0].Database(t))
	var got atomic.Bool
	r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if body, _ := io.ReadAll(request.Body); string(body) != fmt.Sprintf(plantBody, 1000) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		got.Store(true)
	}))
	t.Cleanup(r.Close)
	l, _, _ := listen(t, p, "--forward-to", r.URL)
	for id := range 105 {
		create(t, p, id)
	}
	create(t, p, 1000)
	testkit.WaitFor(t, "the plant behind those that fail", got.Load)
	interrupt(t, l, syscall.SIGINT)
}

// Without --forward-to, verified deliveries are printed. Without --name, a signal removes the endpoint.
func TestListenPrints(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, testkit.Engines[0].Database(t))
	for i, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		l, endpoint, _ := listen(t, p)
		wantEndpoints(t, p, "["+endpoint+" 86400 plantstore listen]")
		body := create(t, p, i)
		testkit.WaitFor(t, body, func() bool { return strings.Contains(l.Stdout.String(), "  "+body+"\n") })
		interrupt(t, l, signal)
		wantEndpoints(t, p, "[]")
		if l.Stderr.String() != "" {
			t.Errorf("printed %s", l.Stderr)
		}
	}
}

// A delivery that was signed with another secret is not printed.
func TestListenVerifies(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, testkit.Engines[0].Database(t))
	l, _, _ := listen(t, p, "--name", "laptop")
	interrupt(t, l, syscall.SIGINT)
	create(t, p, 1)
	l, _, _ = listen(t, p, "--name", "laptop", "--secret", webhook.NewSecret())
	l.WaitLogged(t, "this body with this secret; trying again in 2.0 s")
	if strings.Contains(l.Stdout.String(), "msg_") {
		t.Errorf("printed %s", l.Stdout)
	}
	interrupt(t, l, syscall.SIGINT)
}

// A restart of the service loses no delivery and does not end listen, also if the service is killed.
func TestListenReconnects(t *testing.T) {
	t.Parallel()
	db := testkit.Engines[0].Database(t)
	address := testkit.FreeAddress(t)
	p := testkit.Start(t, db, "--listen", address)
	l, endpoint, _ := listen(t, p)
	for id, stop := range []func(){func() { p.Stop() }, func() { p.Kill() }} {
		stop()
		l.WaitLogged(t, "connection refused; trying again in ")
		p = testkit.StartAgain(t, p, db, "--listen", address)
		body := create(t, p, id)
		testkit.WaitFor(t, body, func() bool { return strings.Contains(l.Stdout.String(), body) })
	}
	wantEndpoints(t, p, "["+endpoint+" 86400 plantstore listen]")
	interrupt(t, l, syscall.SIGINT)
	wantEndpoints(t, p, "[]")
}
