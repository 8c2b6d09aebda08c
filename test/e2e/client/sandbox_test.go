package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	plants "plantstore/client"
	"plantstore/test/testkit"
)

// sandboxCmd returns plantstore sandbox with a temporary folder of its own, which must be empty after the test.
func sandboxCmd(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	temporary := t.TempDir()
	t.Cleanup(func() {
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("plantstore sandbox %q left %v, %v", args, left, err)
		}
	})
	cmd := exec.Command(testkit.Binary, append([]string{"sandbox"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	return cmd
}

// launchSandbox starts plantstore sandbox and waits until it has printed a line with its token.
func launchSandbox(t *testing.T, args ...string) *testkit.Server {
	t.Helper()
	s := testkit.Launch(t, sandboxCmd(t, args...))
	testkit.WaitFor(t, "the sandbox", func() bool {
		s.Token = testkit.TokenPattern.FindString(s.Stdout.String())
		return s.Token != "" && strings.HasSuffix(s.Stdout.String(), "\n") || !s.Running()
	})
	s.URL = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(s.Stdout.String())
	return s
}

// The commands and links that plantstore sandbox prints work as they are. Either signal stops it, also a repeated one.
func TestSandboxPrints(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		s := launchSandbox(t)
		printed := s.Stdout.String()
		curl := regexp.MustCompile(`(?m)^  (curl .*)$`).FindStringSubmatch(printed)
		if curl == nil {
			t.Fatalf("printed %q, %s", printed, s.Stderr)
		}
		out, _ := shell(t, curl[1])
		if !strings.Contains(out, "HTTP/1.1 200 OK") || strings.Count(out, `"id":`) != 12 {
			t.Errorf("%s: %s", curl[1], out)
		}
		for _, link := range []string{"Console: " + s.URL + "/", "Reference: " + s.URL + "/docs"} {
			_, url, _ := strings.Cut(link, " ")
			response, err := testkit.HTTP.Get(url)
			if err != nil || response.StatusCode != 200 || !strings.Contains(printed, "\n"+link+"\n") {
				t.Errorf("%s: %v, %v; printed %q", link, response, err, printed)
			}
		}
		s.Signal(signal)
		s.Signal(signal)
		if code := s.WaitExit(); code != 0 || s.Stderr.String() != "" || s.Stdout.String() != printed {
			t.Errorf("after %v: exit %d, %s, %s", signal, code, s.Stdout, s.Stderr)
		}
	}
}

// --json prints one object. The store main has no token, and one address may create many sandboxes at once.
func TestSandboxJSON(t *testing.T) {
	t.Parallel()
	s := launchSandbox(t, "--json", "--seed", "empty")
	var printed struct{ URL, Token string }
	text := s.Stdout.String()
	if err := json.Unmarshal([]byte(text), &printed); err != nil || strings.Count(text, "\n") != 1 {
		t.Fatalf("printed %q: %v", text, err)
	}
	if want := fmt.Sprintf("{%q:%q,%q:%q}\n", "url", s.URL, "token", s.Token); text != want {
		t.Errorf("printed %q, want %q", text, want)
	}
	first, err := plants.New(printed.URL, printed.Token)
	if err != nil {
		t.Fatal(err)
	}
	wantList(t, first, nil)
	const n = 20
	errs := make(chan error)
	for range n {
		go func() {
			sandbox, err := plants.NewSandbox(t.Context(), printed.URL, plants.WithRetries(0, 0))
			if err == nil {
				_, err = sandbox.Client.Create(t.Context(), plants.NewPlant{ID: 20, Plant: plants.Plant{Name: "Fern"}})
			}
			if err == nil {
				err = sandbox.Close()
			}
			if err == nil {
				if _, absent := sandbox.Client.Get(t.Context(), 20); absent == nil {
					err = errors.New("a sandbox has its plants after Close")
				}
			}
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if code := s.Stop(); code != 0 || s.Stderr.String() != "" {
		t.Errorf("exit %d, %s", code, s.Stderr)
	}
}

// A command gets its sandbox, its own input and output, and nothing of what the shell has for serve and for clients.
func TestSandboxCommand(t *testing.T) {
	t.Parallel()
	database := filepath.Join(t.TempDir(), "plants.db")
	cmd := sandboxCmd(t, "--env", "BASE_URL={url}/", "--env", "BOTH={token}@{url}={token}", "--env", "EMPTY=", "--",
		"sh", "-c", `cat; env | grep -E '^(PLANTSTORE_|BASE_URL|BOTH|EMPTY|OTHER)' | sort; echo error >&2; `+
			`"$0" plants get 12; exit 7`, testkit.Binary)
	cmd.Env = append(cmd.Env, "PLANTSTORE_DB="+database, "PLANTSTORE_LISTEN=nowhere", "PLANTSTORE_FIXED_TOKEN=short",
		"PLANTSTORE_TOKEN=plant_wrong", "PLANTSTORE_TOKEN_FILE=/nowhere", "PLANTSTORE_URL=http://127.0.0.1:1",
		"PLANTSTORE_OIDC_ISSUER=x", "PLANTSTORE_UNKNOWN=x", "PLANTSTORE_SANDBOX=maybe", "OTHER=stays")
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("input\n"), &stdout, &stderr
	cmd.Run()
	want := regexp.MustCompile(`^input\nBASE_URL=(http://127\.0\.0\.1:\d+)/\nBOTH=(plant_\w+)@(\S+)=(plant_\w+)\n` +
		`EMPTY=\nOTHER=stays\nPLANTSTORE_TOKEN=(plant_\w+)\nPLANTSTORE_URL=(\S+)\nID  NAME .*\n12  Seedling .*\n$`)
	m := want.FindStringSubmatch(stdout.String())
	if m == nil || m[1] != m[3] || m[1] != m[6] || m[2] != m[4] || m[2] != m[5] || stderr.String() != "error\n" ||
		cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%v, stdout %q, stderr %q", cmd.ProcessState, stdout.String(), stderr.String())
	}
	if _, err := os.Stat(database); err == nil {
		t.Error("the database of PLANTSTORE_DB was created")
	}
}

func TestSandboxExitCodes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken := testkit.Start(t, testkit.Engines[0].Database(t))
	address := strings.TrimPrefix(taken.URL, "http://")
	for _, c := range []struct {
		code   int
		stderr string
		args   []string
	}{
		{0, "", []string{"--", "true"}},
		{137, "", []string{"--", "sh", "-c", "kill -KILL $$"}},
		{126, "plantstore sandbox: fork/exec " + file + ": permission denied\n", []string{"--", file}},
		{127, "plantstore sandbox: fork/exec /no/such: no such file or directory\n", []string{"--", "/no/such"}},
		{127, "plantstore sandbox: exec: \"no-such\": executable file not found in $PATH\n",
			[]string{"--", "no-such", "--json"}},
		{127, `{"message":"exec: \"no-such\": executable file not found in $PATH","exit":127}` + "\n",
			[]string{"--json", "--", "no-such"}},
		{1, "plantstore sandbox: create a sandbox: 40034: seed must be garden or empty\n", []string{"--seed", "x"}},
		{1, "plantstore sandbox: --listen " + address + ": the port is in use by another program; choose another\n",
			[]string{"--listen", address}},
	} {
		cmd := sandboxCmd(t, c.args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != c.code || stdout.Len() > 0 || stderr.String() != c.stderr {
			t.Errorf("%q: exit %d, %s, %q; want exit %d, %q", c.args, got, &stdout, stderr.String(), c.code, c.stderr)
		}
	}
	cmd := sandboxCmd(t, "--", "no-such")
	cmd.Env = append(cmd.Env, "PLANTSTORE_JSON=true") // means the same in every command
	if out, _ := cmd.CombinedOutput(); !strings.HasPrefix(string(out), `{"message":`) {
		t.Errorf("with PLANTSTORE_JSON: %s", out)
	}
}

// Signals that only plantstore gets are passed on. The service continues until the command ends.
func TestSandboxPassesSignalsOn(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		cmd := sandboxCmd(t, "--", "sh", "-c",
			`trap '"$0" plants get 1; exit 9' INT TERM HUP; echo up; while :; do sleep 0.05; done`, testkit.Binary)
		stdout := new(testkit.Output)
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = stdout, stdout, &syscall.SysProcAttr{Setsid: true} // no terminal
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testkit.WaitFor(t, "the command", func() bool { return stdout.String() == "up\n" })
		cmd.Process.Signal(signal)
		cmd.Wait()
		if cmd.ProcessState.ExitCode() != 9 || !strings.Contains(stdout.String(), "Monstera") {
			t.Errorf("%v: %v, %s", signal, cmd.ProcessState, stdout)
		}
	}
}
