package lifecycle

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

// Every flag and variable that the examples use is one of serve.
func TestExamplesUseFlagsThatExist(t *testing.T) {
	help, _, code := testkit.Run(t, nil, "serve", "-h")
	if code != 0 {
		t.Fatal(code)
	}
	used := regexp.MustCompile(`--[a-z-]+\b|PLANTSTORE_[A-Z_]+`)
	for name, least := range map[string]int{"plantstore.service": 2, "Containerfile": 3} {
		found := 0
		for line := range strings.Lines(testkit.DeployFile(t, name)) {
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
	unit := testkit.DeployFile(t, "plantstore.service")
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
		file: testkit.ReplaceOnce(t, unit, "/usr/local/bin/plantstore", testkit.Binary), socket: testkit.DeployFile(t, "plantstore.socket"),
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
	unit := testkit.DeployFile(t, "plantstore.socket")
	if help, _, _ := testkit.Run(t, nil, "serve", "-h"); !strings.Contains(unit, "\nListenStream=127.0.0.1:8080\n") || !strings.Contains(help, "default 127.0.0.1:8080") {
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
	address := testkit.FreeAddress(t)
	p := testkit.Launch(t, exec.Command(program, "--listen="+address, "--fdname=http", testkit.Binary, "serve",
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
	p.WaitServing()
	if p.URL != "http://"+address {
		t.Errorf("serves %s, want the socket that was passed on, %s", p.URL, address)
	}
	testkit.WantResponse(t, "through a socket of systemd", p.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
}
