package lifecycle

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// Every flag and variable in the deployment examples exists.
func TestExamplesUseFlagsThatExist(t *testing.T) {
	t.Parallel()
	help, _, code := testkit.Run(t, nil, "serve", "-h")
	if code != 0 {
		t.Fatal(code)
	}
	used := regexp.MustCompile(`--[a-z-]+\b|PLANTSTORE_[A-Z_]+`)
	for name, least := range map[string]int{"plantstore.service": 2, "Containerfile": 3} {
		found := 0
		for line := range strings.Lines(testkit.DeployFile(t, name)) {
			if word, _, _ := strings.Cut(line, " "); word == "#" || word == "COPY" || word == "HEALTHCHECK" {
				continue
			}
			for _, word := range used.FindAllString(line, -1) {
				found++
				if !regexp.MustCompile(regexp.QuoteMeta(word) + `\b`).MatchString(help) {
					t.Errorf("%s uses %s, which does not exist", name, word)
				}
			}
		}
		if found < least {
			t.Errorf("%s uses %d flags and variables, want at least %d", name, found, least)
		}
	}
}

func TestUnit(t *testing.T) {
	testkit.Long(t)
	unit := testkit.DeployFile(t, "plantstore.service")
	if !strings.Contains(unit, "--drain 10s") || !strings.Contains(unit, "TimeoutStopSec=30") {
		t.Error("TimeoutStopSec must be longer than --drain")
	}
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		testkit.Unavailable(t, "systemd-analyze is not installed: only the text of the unit is checked")
	}
	folder := t.TempDir()
	socket := filepath.Join(folder, "plantstore.socket")
	file := filepath.Join(folder, "plantstore.service")
	files := map[string]string{
		file:   testkit.ReplaceOnce(t, unit, "/usr/local/bin/plantstore", testkit.Binary),
		socket: testkit.DeployFile(t, "plantstore.socket"),
	}
	writeUnits(t, files)
	analyze := func(args ...string) {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil || args[0] == "verify" && strings.Contains(string(out), "plantstore.") {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
	analyze("verify", file, socket)
	analyze("security", "--offline=true", "--threshold=15", file)

	// With the examples of the documentation.
	examples := dropIns(t)
	if len(examples) < 2 {
		t.Fatalf("%d examples of drop-ins", len(examples))
	}
	for name, text := range examples {
		writeUnits(t, map[string]string{filepath.Join(folder, "plantstore.service.d", name): text})
	}
	analyze("verify", file, socket)
	wrong := filepath.Join(folder, "plantstore.service.d", "wrong.conf") // to show that drop-ins are read
	writeUnits(t, map[string]string{wrong: "[Service]\nTyp=x\n"})
	if out, _ := exec.Command(program, "verify", file).CombinedOutput(); !strings.Contains(string(out), "wrong.conf") {
		t.Errorf("drop-ins are not verified: %s", out)
	}
}

func writeUnits(t *testing.T, files map[string]string) {
	t.Helper()
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// dropIns returns the text of each drop-in of the unit in the documentation, by its file name.
func dropIns(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	block := regexp.MustCompile("(?s)```ini\n# /etc/systemd/system/plantstore.service.d/(\\S+)\n(.*?)```")
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		all[m[1]] = m[2]
	}
	return all
}

// The socket unit has the default address and a name that serve knows, and serve accepts a socket from systemd.
func TestSocketUnit(t *testing.T) {
	testkit.Long(t)
	unit := testkit.DeployFile(t, "plantstore.socket")
	help, _, _ := testkit.Run(t, nil, "serve", "-h")
	if !strings.Contains(unit, "\nListenStream=127.0.0.1:8080\n") || !strings.Contains(help, `default "127.0.0.1:8080"`) {
		t.Error("the socket unit and serve have different addresses")
	}
	if !strings.Contains(unit, "\nFileDescriptorName=http\n") {
		t.Error("the socket unit has no name that serve knows")
	}
	program, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		testkit.Unavailable(t, "systemd-socket-activate is not installed: only the text of the unit is checked")
	}
	address := testkit.FreeAddress(t)
	p := testkit.Launch(t, exec.Command(program, "--listen="+address, "--fdname=http", testkit.Binary, "serve",
		"--db", filepath.Join(t.TempDir(), "plants.db"), "--listen", "192.0.2.1:1", "--ops-listen", "off"))
	testkit.WaitFor(t, "systemd-socket-activate to listen", func() bool {
		c, err := net.Dial("tcp", address) // which starts the service
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	p.WaitServing()
	if p.URL != "http://"+address {
		t.Errorf("serves %s, want the socket of systemd, %s", p.URL, address)
	}
	testkit.WantResponse(t, "through a socket of systemd", p.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
}
