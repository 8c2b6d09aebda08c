package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/test/testkit"
	"plantstore/test/testkit/missing"
)

const webhookPage = "docs/webhooks.md"

// The module of the receiver in Go. It also has the library for Python.
const (
	library = "github.com/standard-webhooks/standard-webhooks/libraries"
	goMod   = "module receiver\n\ngo 1.26\n\nrequire " + library + " v0.0.1\n"
	goSum   = library + " v0.0.1 h1:uOfcYT+3QungH6tIGSVCR/Y3KJmgJiHcojJbMTPDZAI=\n" +
		library + " v0.0.1/go.mod h1:L1MQhA6x4dn9r007T033lsaZMv9EmBAdXyU/+EF40fo=\n"
)

// Each receiver of the page accepts the deliveries of the service, also the first one after a rotation, with the old
// and with the new secret. It refuses a delivery with another body.
func TestReceivers(t *testing.T) {
	t.Parallel()
	for heading, prepare := range map[string]func(*testing.T, string) *exec.Cmd{
		"Go": goReceiver, "Node": nodeReceiver, "Python": pythonReceiver,
	} {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			start := func(secret string) (address string, printed func() string) {
				address = testkit.FreeAddress(t)
				cmd := prepare(t, address)
				cmd.Env = append(cmd.Environ(), "WEBHOOK_SECRET="+secret)
				receiver := testkit.Launch(t, cmd)
				testkit.WaitFor(t, "the receiver to listen", func() bool {
					c, err := net.Dial("tcp", address)
					if err == nil {
						c.Close()
					}
					return err == nil
				})
				return address, func() string { return receiver.Stdout.String() + receiver.Stderr.String() }
			}
			testReceiver(t, start)
		})
	}
}

func testReceiver(t *testing.T, start func(secret string) (address string, printed func() string)) {
	s := testkit.Start(t, testkit.Engines[0].Database(t), "--webhook-targets", "private")
	r := newRelay(t)
	added := endpointOf(t, s.Do(t, "POST", "/webhooks", `{"url":"`+r.URL+`/hook"}`, testkit.ContentJSON), 201)
	address, printed := start(added.Secret)
	r.to = address
	const plant = `{"id":1,"name":"Crème 🌿 <Fern>","tag":"a \"b\""}`
	testkit.WantResponse(t, "create", s.Create(t, plant), 200, strings.Replace(plant, `"id":1,`, "", 1))
	first := r.delivery(t)
	if got := string(first.body); got != plant || first.status/100 != 2 {
		t.Fatalf("the receiver returns %d for %s, want 2xx for %s", first.status, got, plant)
	}
	line := first.header.Get("webhook-id") + " " + plant
	testkit.WaitFor(t, "the receiver to print "+line, func() bool { return strings.Contains(printed(), line) })
	testkit.WaitFor(t, "the delivery to be recorded", func() bool {
		list := s.Do(t, "GET", "/webhooks/"+added.ID+"/deliveries?status=delivered", "")
		return strings.HasPrefix(list.Body, `[{"id":"`+first.header.Get("webhook-id")+`"`)
	})
	forged, unsigned := first, first
	forged.body = bytes.Replace(first.body, []byte("Fern"), []byte("Farn"), 1)
	unsigned.header = first.header.Clone()
	unsigned.header.Set("webhook-signature", "none")
	for _, d := range []delivery{forged, unsigned} {
		if got := send(t, address, d); got != 401 {
			t.Errorf("%s with the signature %s gets %d, want 401", d.body, d.header.Get("webhook-signature"), got)
		}
	}
	rotated := endpointOf(t, s.Do(t, "POST", "/webhooks/"+added.ID+"/rotate", ""), 200)
	testkit.WantResponse(t, "create", s.Create(t, `{"id":2,"name":"Fern"}`), 200, `{"name":"Fern"}`)
	second := r.delivery(t)
	if got := strings.Fields(second.header.Get("webhook-signature")); second.status/100 != 2 || len(got) != 2 {
		t.Errorf("the old secret gets %d for the signatures %q, want 2xx and two", second.status, got)
	}
	address, _ = start(rotated.Secret)
	for name, c := range map[string]struct {
		delivery
		want int
	}{"after the rotation": {second, 2}, "before it": {first, 4}} {
		if got := send(t, address, c.delivery); got/100 != c.want {
			t.Errorf("with the new secret, the delivery %s gets %d, want %dxx", name, got, c.want)
		}
	}
}

type endpoint struct{ ID, Secret string }

func endpointOf(t *testing.T, a testkit.Response, status int) (e endpoint) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.Body), &e); err != nil || a.Status != status || e.Secret == "" {
		t.Fatalf("%d %s, want %d with a secret: %v", a.Status, a.Body, status, err)
	}
	return e
}

// delivery is a request of the service, and the status of its response.
type delivery struct {
	header http.Header
	body   []byte
	status int
}

// relay passes deliveries on to a receiver.
type relay struct {
	*httptest.Server
	to     string // the address of the receiver
	passed chan delivery
}

func newRelay(t *testing.T) *relay {
	r := &relay{passed: make(chan delivery, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		d := delivery{header: request.Header.Clone()}
		d.body, _ = io.ReadAll(request.Body)
		d.status = send(t, r.to, d)
		w.WriteHeader(d.status)
		r.passed <- d
	}))
	t.Cleanup(r.Close)
	return r
}

// delivery returns the next delivery that was passed on.
func (r *relay) delivery(t *testing.T) (d delivery) {
	t.Helper()
	testkit.WaitFor(t, "a delivery", func() bool {
		select {
		case d = <-r.passed:
			return true
		default:
			return false
		}
	})
	return d
}

// send sends a delivery to a receiver, and returns the status of its response.
func send(t *testing.T, address string, d delivery) int {
	request, err := http.NewRequest("POST", "http://"+address+"/hook", bytes.NewReader(d.body))
	if err != nil {
		t.Error(err)
		return http.StatusBadGateway
	}
	request.Header = d.header.Clone()
	response, err := testkit.HTTP.Do(request)
	if err != nil {
		t.Error(err)
		return http.StatusBadGateway
	}
	response.Body.Close()
	return response.StatusCode
}

// example writes a receiver of the page to a folder, with another port.
func example(t *testing.T, folder, file, heading, language, address string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(address)
	program := testkit.ReplaceOnce(t, testkit.CodeBlock(t, webhookPage, heading, language), "3000", port)
	if err := os.WriteFile(filepath.Join(folder, file), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
}

// goReceiver builds the receiver in a module of its own.
func goReceiver(t *testing.T, address string) *exec.Cmd {
	folder := moduleFolder(t)
	example(t, folder, "main.go", "### Go", "go", address)
	runGo(t, folder, "build", "-pgo=off", "-o", "receiver", ".")
	return exec.Command(filepath.Join(folder, "receiver"))
}

// moduleFolder returns a folder with a module that requires the library. It has been downloaded.
func moduleFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"go.mod": goMod, "go.sum": goSum} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "mod", "download", library)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		missing.Optional(t, "the Go library: %v %s", err, out)
	}
	return folder
}

func runGo(t *testing.T, folder string, args ...string) (stdout string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, stderr.Bytes())
	}
	return string(out)
}

func nodeReceiver(t *testing.T, address string) *exec.Cmd {
	packages, err := testkit.NPM()
	if err != nil {
		missing.Optional(t, "the npm packages: %v", err)
	}
	folder := t.TempDir()
	if err := os.Symlink(packages, filepath.Join(folder, "node_modules")); err != nil {
		t.Fatal(err)
	}
	example(t, folder, "receiver.mjs", "### Node", "js", address)
	return exec.Command("node", filepath.Join(folder, "receiver.mjs"))
}

func pythonReceiver(t *testing.T, address string) *exec.Cmd {
	if _, err := exec.LookPath("python3"); err != nil {
		missing.Optional(t, "%v", err)
	}
	folder := moduleFolder(t)
	libraries := strings.TrimSpace(runGo(t, folder, "list", "-m", "-f", "{{.Dir}}", library))
	example(t, folder, "receiver.py", "### Python", "python", address)
	cmd := exec.Command("python3", "-u", "-B", filepath.Join(folder, "receiver.py"))
	cmd.Env = append(os.Environ(), fmt.Sprintf("PYTHONPATH=%s/python", libraries))
	return cmd
}
