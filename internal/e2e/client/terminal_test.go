package client

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	plants "plantstore/client"
	"plantstore/internal/testkit"
	"plantstore/internal/testkit/missing"
)

// openTerminal opens a terminal of 80 columns and returns both of its ends.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		missing.Report(t, "a terminal: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		missing.Report(t, "a terminal: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return master, terminal
}

// onTerminal runs a command on a terminal of 80 columns and returns the lines that it prints.
func onTerminal(t *testing.T, env []string, args ...string) []string {
	t.Helper()
	master, terminal := openTerminal(t)
	cmd := exec.Command(testkit.Binary, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	var printed bytes.Buffer
	printed.ReadFrom(master) // ends with an error when the last process has closed the terminal
	if err := cmd.Wait(); err != nil {
		t.Errorf("%q: %v", args, err)
	}
	return strings.Split(strings.TrimSuffix(printed.String(), "\r\n"), "\r\n")
}

// A table fits the terminal. In a file its cells are whole, and none is padded to the longest.
func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "plants.db")
	p := testkit.Start(t, db)
	long := strings.Repeat("Monstera ", 333) + "end"
	for id, name := range map[int64]string{1: long, 2: "Fern", 3: strings.Repeat("龟背竹", 100)} {
		plant := plants.NewPlant{ID: id, Plant: plants.Plant{Name: name, Tag: &[]string{"climber"}[0]}}
		if _, err := newClient(t, p).Create(t.Context(), plant); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PLANTSTORE_URL=" + p.URL, "PLANTSTORE_TOKEN=" + p.Token, "COLUMNS="}
	for what, lines := range map[string][]string{
		"80 columns": onTerminal(t, env, "plants", "list"),
		"50 columns": onTerminal(t, append(env, "COLUMNS=50"), "plants", "list"),
	} {
		columns := map[string]int{"80 columns": 80, "50 columns": 50}[what]
		if len(lines) != 4 || utf8.RuneCountInString(lines[1]) != columns || !strings.HasSuffix(lines[1], "…  climber") ||
			!strings.HasPrefix(lines[2], "2   Fern   ") || !strings.HasSuffix(lines[3], "…  climber") &&
			!strings.HasSuffix(lines[3], "…   climber") {
			t.Errorf("plants list on a terminal of %s:\n%s", what, strings.Join(lines, "\n"))
		}
	}
	if lines := onTerminal(t, env, "token", "list", "--db", db); len(lines) != 2 ||
		utf8.RuneCountInString(lines[1]) > 80 || !strings.HasPrefix(lines[1], "first  main") {
		t.Errorf("token list on a terminal:\n%s", strings.Join(lines, "\n"))
	}
	stdout, _, _ := testkit.Run(t, env, "plants", "get", "2")
	etag := stdout[strings.LastIndex(stdout, " ")+1 : len(stdout)-1]
	if lines := onTerminal(t, append(env, "COLUMNS=10"), "plants", "get", "2"); len(lines) != 2 ||
		!strings.HasSuffix(lines[1], "  cli…  "+etag) {
		t.Errorf("plants get on a narrow terminal:\n%s\nwant the ETag %s", strings.Join(lines, "\n"), etag)
	}
	if lines := onTerminal(t, env, "plants", "list", "--json"); !strings.Contains(lines[0], long) {
		t.Errorf("plants list --json on a terminal:\n%s", strings.Join(lines, "\n"))
	}
	stdout, _, _ = testkit.Run(t, env, "plants", "list")
	lines := strings.Split(stdout, "\n")
	if !strings.Contains(lines[1], long+"  climber") || len(lines[2]) > 60 || !strings.HasPrefix(lines[2], "2   Fern   ") {
		t.Errorf("plants list to a pipe:\n%s", stdout)
	}
}

// Commands print what the terminal of a person needs: which token is in use, and what a refusal means.
func TestTokenShow(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "plants.db")
	p := testkit.Start(t, db)
	reader := testkit.IssueToken(t, db, "--name", "reader", "--store", "shop", "--scopes", "plants:read",
		"--rate", "10/m", "--burst", "3", "--expires", "1d")
	env := []string{"PLANTSTORE_URL=" + p.URL, "PLANTSTORE_TOKEN=" + reader}
	out, errs, code := testkit.Run(t, env, "token", "show")
	lines := strings.Split(out, "\n")
	if code != 0 || errs != "" || len(lines) != 6 || lines[0] != "name     reader" || lines[1] != "store    shop" ||
		lines[2] != "scopes   plants:read" || !strings.HasPrefix(lines[3], "expires  20") ||
		lines[4] != "rate     10/m, burst 3" {
		t.Errorf("token show: exit %d\n%s%s", code, out, errs)
	}
	out, _, _ = testkit.Run(t, env, "token", "show", "--json")
	if !strings.Contains(out, `"name": "reader",`) || !strings.Contains(out, `"burst": 3`) ||
		strings.Contains(out, reader) {
		t.Errorf("token show --json: %s", out)
	}
	out, errs, code = testkit.Run(t, []string{"PLANTSTORE_URL=" + p.URL, "PLANTSTORE_TOKEN=" + p.Token}, "token", "show")
	if code != 0 || !strings.HasSuffix(out, "\nexpires  -\nrate     -\n") {
		t.Errorf("token show of the first token: exit %d\n%s%s", code, out, errs)
	}
	for args, want := range map[string]string{
		"plants create --id 1 --name x": "plantstore plants create: 40301: ", "token show --token plant_wrong": "40103: ",
	} {
		out, errs, code := testkit.Run(t, env, strings.Fields(args)...)
		if code != 6 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want exit 6 and %q", args, code, out, errs, want)
		}
	}
}
