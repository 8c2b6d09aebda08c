// Package tools runs tools that read the published description: linters and API clients. They are npm
// packages, pinned in package-lock.json. make test-all runs it.
package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/test/testkit"
	"plantstore/test/testkit/missing"
)

var update = flag.Bool("update", false, "write what the tests found to the documentation")

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// limit is how long a tool may take. It is generous, since the machine may be busy.
const limit = 10 * time.Minute

// run runs a program of one of the packages to its end and returns what it prints to standard output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	return finish(t, "", append([]string{filepath.Join(npm(t), ".bin", name)}, args...))
}

// execute runs a command to its end in a folder, which gets the packages.
func execute(t *testing.T, dir, command string) {
	t.Helper()
	if err := os.Symlink(npm(t), filepath.Join(dir, "node_modules")); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	finish(t, dir, strings.Fields(command))
}

// npm returns the folder of the packages.
func npm(t *testing.T) string {
	t.Helper()
	packages, err := testkit.NPM()
	if err != nil {
		missing.Optional(t, "the npm packages: %v", err)
	}
	return packages
}

func finish(t *testing.T, dir string, command []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second // for its children, once it is killed
	cmd.Env = append(os.Environ(), "NO_COLOR=1", "CI=true", "npm_config_offline=true", "GOFLAGS=", "GOWORK=off")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s\n%s", command, err, out, errs.String())
	}
	return string(out)
}

// serve starts the product with a new database. Every test needs it, and is long.
func serve(t *testing.T, args ...string) *testkit.Server {
	t.Helper()
	testkit.Long(t)
	return testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), args...)
}

// describe downloads the description that a server publishes, and returns the path of the copy.
func describe(t *testing.T, s *testkit.Server, name string) string {
	t.Helper()
	response, err := testkit.HTTP.Get(s.URL + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET /%s: %d, %v", name, response.StatusCode, err)
	}
	return write(t, name, text)
}

// write writes a file to a new folder.
func write(t *testing.T, name string, text []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns the text of a file.
func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decode[T any](t *testing.T, text []byte) (value T) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v in %.2000s", err, text)
	}
	return value
}
