package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	plants "plantstore/client"
	"plantstore/internal/testkit"
)

// runPlants runs plantstore plants against a server.
func runPlants(t *testing.T, p *testkit.Server, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return testkit.Run(t, []string{"PLANTSTORE_URL=" + p.URL, "PLANTSTORE_TOKEN=" + p.Token},
		append([]string{"plants"}, args...)...)
}

// commandTests run one after the other. In args _ is an empty argument, ETAG the first ETag of plant 7 and OPS the
// address of health checks. A stdout that ends with * and stderr are prefixes.
var commandTests = []struct {
	args, stdout, stderr string
	code                 int
}{
	{"create --id 7 --name Fern --tag shade", "ID  NAME  TAG\n7   Fern  shade\n", "", 0},
	{"create --id 7 --name Fern --tag shade", "ID  NAME  TAG\n7   Fern  shade\n", "", 0},
	{"create --id 7 --name Fern", "",
		"plantstore plants create: 40009: id 7 already belongs to a plant with a different name or tag", 4},
	{"create --id -9223372036854775808 --name _ --tag _ --json",
		`{"id":-9223372036854775808,"name":"","tag":""}` + "\n", "", 0},
	{"create --json --id=9223372036854775807 --name=\x1b[31m<b>",
		`{"id":9223372036854775807,"name":"\u001b[31m<b>"}` + "\n", "", 0},
	{"create --id 9223372036854775808 --name x", "",
		`plantstore plants create: --id is "9223372036854775808": must be an integer`, 2},
	{"create --id 1.5 --name x", "", `plantstore plants create: --id is "1.5": must be an integer`, 2},
	{"create --id 1", "", "plantstore plants create: --id and --name are required\n", 2},
	{"create --name x", "", "plantstore plants create: --id and --name are required\n", 2},
	{"create --id 1 --name x y", "", "plantstore plants create: expected arguments: none", 2},
	{"create --id 1 --name \xff", "", "plantstore plants create: the name and the tag must be valid UTF-8\n", 1},
	{"get --json 7", `{"id":7,"name":"Fern","tag":"shade","etag":ETAG}` + "\n", "", 0},
	{"get 7 --json", `{"id":7,"name":"Fern","tag":"shade","etag":ETAG}` + "\n", "", 0},
	{"get -- -9223372036854775808", "ID                    NAME  TAG  ETAG\n-9223372036854775808  \"\"    \"\"   *",
		"", 0},
	{"get -9223372036854775808 --json", `{"id":-9223372036854775808,"name":"","tag":"","etag":*`, "", 0},
	{"get 9223372036854775807",
		"ID                   NAME           TAG  ETAG\n9223372036854775807  \"\\x1b[31m<b>\"       *", "", 0},
	{"get 8", "", "plantstore plants get: 40401: plant 8 does not exist", 3},
	{"get -8", "", "plantstore plants get: 40401: plant -8 does not exist", 3},
	{"get seven", "", `plantstore plants get: id "seven" must be an integer`, 2},
	{"get", "", "plantstore plants get: expected arguments: ID", 2},
	{"get 7 --fish", "", "plantstore plants get: unknown flag: --fish; see plantstore plants get --help\n", 2},
	{"list", "ID                    NAME           TAG\n" +
		"-9223372036854775808  \"\"             \"\"\n" +
		"7                     Fern           shade\n" +
		"9223372036854775807   \"\\x1b[31m<b>\"  \n", "", 0},
	{"list --limit 1 --after -5", "ID  NAME  TAG\n7   Fern  shade\n", "", 0},
	{"list --after 9223372036854775807", "ID  NAME  TAG\n", "", 0},
	{"list --after 9223372036854775807 --json", "[]\n", "", 0},
	{"list --limit -1", "", "plantstore plants list: --limit is -1: ", 2},
	{"replace 7 --name", "", "plantstore plants replace: flag needs an argument: --name", 2},
	{"replace 7", "", "plantstore plants replace: --name is required\n", 2},
	{"replace 7 --name Ivy --if-match _", "",
		`plantstore plants replace: --if-match is "": must not be empty; use the ETag`, 2},
	{"remove 7 --if-match _", "", `plantstore plants remove: --if-match is "": must not be empty; use the ETag`, 2},
	{"replace 7 --name Ivy --if-match a,b", "", "plantstore plants replace: 41201: plant 7 does not match If-Match", 4},
	{"replace 7 --name Ivy --if-match other", "", "plantstore plants replace: 41201: plant 7 does not match If-Match",
		4},
	{"replace 7 --name Ivy --if-match ETAG --json", `{"id":7,"name":"Ivy","etag":*`, "", 0},
	{"replace 7 --name Oak --if-match ETAG", "", "plantstore plants replace: 41201: plant 7 does not match If-Match", 4},
	{"remove 7 --if-match ETAG", "", "plantstore plants remove: 41201: plant 7 does not match If-Match", 4},
	{"remove --if-match * 7", "", "", 0},
	{"remove 7", "", "plantstore plants remove: 40401: plant 7 does not exist", 3},
	{"remove -9223372036854775808", "", "", 0},
	{"get 7 --token a-fixed-token-of-others", "", "plantstore plants get: 40103: ", 6},
	{"get 7 --token _ --token-file /nowhere", "", "plantstore plants get: read the token file: ", 1},
	{"get 7 --url http://127.0.0.1:1", "",
		"plantstore plants get: Get \"http://127.0.0.1:1/plants/7\": dial tcp 127.0.0.1:1: " +
			"connect: connection refused (tried 4 times); check --url, and that the service is running\n", 5},
	{"get 7 --url 127.0.0.1:1", "",
		`plantstore plants get: base URL "127.0.0.1:1" is invalid: use one such as http://`, 2},
	{"get 7 --url http://plants.invalid --json", "", `{"message":"Get \"http://plants.invalid/plants/7\": `, 5},
	{"get 7 --json", "", `{"error":40401,"message":"plant 7 does not exist","exit":3}` + "\n", 3},
	{"get --json seven", "", `{"message":"id \"seven\" must be an integer`, 2},
	{"create --id 5 --name Ivy --tag Shade", "ID  NAME  TAG\n5   Ivy   Shade\n", "", 0},
	{"list --search VY", "ID  NAME  TAG\n5   Ivy   Shade\n", "", 0},
	{"list --search iv --tag Shade", "ID  NAME  TAG\n5   Ivy   Shade\n", "", 0},
	{"list --tag shade", "ID  NAME  TAG\n", "", 0},
	{"list --tag _ --json", "[]\n", "", 0},
	{"get 7 --url OPS", "", "plantstore plants get: 40402: the path does not exist", 1},
}

func TestClientCommands(t *testing.T) {
	testkit.OnEachEngine(t, func(t *testing.T, p *testkit.Server) {
		var seen string // the first ETag of plant 7
		for _, test := range commandTests {
			args := strings.Fields(test.args)
			for i, arg := range args {
				switch arg {
				case "_":
					args[i] = ""
				case "ETAG":
					args[i] = seen
				case "OPS":
					args[i] = p.Ops
				}
			}
			stdout, stderr, code := runPlants(t, p, args...)
			if seen == "" && args[0] == "get" {
				var got struct{ ETag string }
				if err := json.Unmarshal([]byte(stdout), &got); err != nil {
					t.Fatal(err)
				}
				seen = strings.Trim(got.ETag, `"`) // as a shell would pass it
			}
			want, open := strings.CutSuffix(strings.ReplaceAll(test.stdout, "ETAG}", fmt.Sprintf(`"\"%s\""}`, seen)), "*")
			if stdout != want && !(open && strings.HasPrefix(stdout, want)) || !strings.HasPrefix(stderr, test.stderr) ||
				(test.stderr == "") != (stderr == "") || code != test.code {
				t.Errorf("plants %q: exit %d\n%s%s\nwant exit %d\n%s%s", args, code, stdout, stderr, test.code, want, test.stderr)
			}
			if strings.Contains(stdout+stderr, "\x1b") || strings.Contains(stderr, p.Token) || strings.Count(stderr, "\n") > 1 {
				t.Errorf("plants %q printed an escape code, the token or several lines:\n%s%s", args, stdout, stderr)
			}
		}
		wantTokenSources(t, p)
	})
}

// wantTokenSources checks that a command needs a token, and that flags take precedence over the environment.
func wantTokenSources(t *testing.T, p *testkit.Server) {
	t.Helper()
	environment := []string{"PLANTSTORE_URL=" + p.URL, "PLANTSTORE_TOKEN="}
	_, stderr, code := testkit.Run(t, environment, "plants", "list")
	if code != 2 || !strings.Contains(stderr, "a token is required") {
		t.Errorf("without a token: exit %d, %s", code, stderr)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(p.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--token-file", file}, {"--token", p.Token}} {
		environment[1] = "PLANTSTORE_TOKEN=a-fixed-token-of-others"
		_, stderr, code := testkit.Run(t, environment, append([]string{"plants", "list"}, args...)...)
		if code != 0 {
			t.Errorf("%s: exit %d, %s", args[0], code, stderr)
		}
	}
}

// A command whose outcome is unknown says so and what to do.
func TestClientCommandsWithUnknownOutcome(t *testing.T) {
	var requests atomic.Int32
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler) // The plant may have been stored.
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"error":50301,"message":"busy"}`)
	}))
	defer broken.Close()
	p := &testkit.Server{URL: broken.URL, Token: testkit.FixedToken}
	const unknown, again, look = "the outcome is unknown, the change may have been made: ",
		"run the same command again, which is safe", "check with plants get"
	for args, want := range map[string][]string{
		"create --id 7 --name Fern": {unknown, "50301: busy (tried 4 times)", again},
		"replace 7 --name Fern":     {unknown, "EOF", look},
		"remove 7":                  {unknown, "EOF", look},
	} {
		requests.Store(0)
		stdout, stderr, code := runPlants(t, p, strings.Fields(args)...)
		for _, words := range want {
			if !strings.Contains(stderr, words) || stdout != "" || code != 1 || strings.Count(stderr, "\n") != 1 {
				t.Errorf("plants %s: exit %d\n%s%s\nwant exit 1 and a line with %q", args, code, stdout, stderr, words)
			}
		}
		// The service refuses every request now, so the change was certainly not made.
		if _, stderr, code := runPlants(t, p, strings.Fields(args)...); strings.Contains(stderr, unknown) ||
			!strings.Contains(stderr, "50301: busy") || code != 1 {
			t.Errorf("plants %s: exit %d\n%s\nwant exit 1 and a certain refusal", args, code, stderr)
		}
	}
}

// A list of many pages is printed completely. It ends silently when its reader closes the pipe, and with an error on
// a full disk.
func TestClientLongList(t *testing.T) {
	p := testkit.Start(t, testkit.Engines[0].Database(t))
	c := newClient(t, p)
	const n = 2500
	var wg sync.WaitGroup
	for worker := range int64(16) {
		wg.Go(func() {
			for id := worker; id < n; id += 16 {
				p := plants.NewPlant{ID: id, Plant: plants.Plant{Name: strings.Repeat("x", 100)}}
				if _, err := c.Create(t.Context(), p); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for limit, want := range map[string]int{"0": n, "1": 1, "1001": 1001} {
		stdout, stderr, code := runPlants(t, p, "list", "--json", "--limit", limit)
		var got []plants.NewPlant
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got) != want || got[want-1].ID != int64(want-1) ||
			code != 0 {
			t.Errorf("list --json --limit %s: %d plants, exit %d, %v, %s, want %d", limit, len(got), code, err, stderr, want)
		}
		stdout, _, code = runPlants(t, p, "list", "--limit", limit)
		if lines := strings.Count(stdout, "\n"); lines != want+1 || code != 0 {
			t.Errorf("list --limit %s: %d lines, exit %d, want %d", limit, lines, code, want+1)
		}
	}
	for _, form := range []string{"--json", "--json=false"} {
		wantWriteErrors(t, p, form)
	}
}

// wantWriteErrors lists plants to a pipe that is closed and to a full disk.
func wantWriteErrors(t *testing.T, p *testkit.Server, form string) {
	t.Helper()
	cmd := exec.Command(testkit.Binary, "plants", "list", form, "--url", p.URL, "--token", p.Token)
	stderr := new(testkit.Output)
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	io.ReadFull(stdout, make([]byte, 10))
	stdout.Close()
	if cmd.Wait(); stderr.String() != "" || cmd.ProcessState.ExitCode() != -1 { // ended by SIGPIPE, like any filter
		t.Errorf("list %s to a closed pipe: %v, %s", form, cmd.ProcessState, stderr)
	}

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(testkit.Binary, "plants", "list", form, "--url", p.URL, "--token", p.Token)
	stderr = new(testkit.Output)
	cmd.Stdout, cmd.Stderr = full, stderr
	cmd.Run()
	full.Close()
	if !strings.Contains(stderr.String(), "no space left") || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("list %s to a full disk: %v, %s", form, cmd.ProcessState, stderr)
	}
}

func TestHealthCommand(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	p := testkit.Start(t, db)
	listen := "PLANTSTORE_OPS_LISTEN=" + strings.Replace(p.Ops, "http://127.0.0.1", "0.0.0.0", 1)
	out, errs, code := testkit.Run(t, []string{listen, "PLANTSTORE_URL=" + p.URL}, "health")
	if out != "ready\n" || errs != "" || code != 0 {
		t.Errorf("health: exit %d, %q, %q", code, out, errs)
	}
	out, errs, code = testkit.Run(t, nil, "health", "--url", p.URL)
	if out != "" || !strings.Contains(errs, "is not the health check of a Plant Store") || code != 1 {
		t.Errorf("health at the address of the service: exit %d, %q, %q", code, out, errs)
	}
	if err := os.Rename(db, db+".moved"); err != nil {
		t.Fatal(err)
	}
	out, errs, code = testkit.Run(t, []string{listen}, "health")
	if out != "" || !strings.HasPrefix(errs, "plantstore health: not ready: ") || code != 1 {
		t.Errorf("health without the database: exit %d, %q, %q", code, out, errs)
	}
	p.Kill()
	out, errs, code = testkit.Run(t, []string{listen}, "health")
	if out != "" || !strings.Contains(errs, "connection refused") || code != 1 {
		t.Errorf("health without the service: exit %d, %q, %q", code, out, errs)
	}
}
