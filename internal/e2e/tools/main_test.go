// Package tools runs tools that read the published description: linters, mock servers, API clients and
// playgrounds. They are npm packages, pinned in package-lock.json.
package tools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/missing"
)

func TestMain(m *testing.M) {
	code := testkit.Main(m)
	stopBrowser()
	os.Exit(code)
}

// limit is how long a tool may take. It is generous, since the machine may be busy.
const limit = 2 * time.Minute

// packages returns the directory that has node_modules, and skips the test if it can't be had.
func packages(t *testing.T) string {
	t.Helper()
	dir, err := install()
	if err != nil {
		missing.Optional(t, "the npm packages: %v", err)
	}
	return dir
}

// install installs the packages below bin/, in a directory named by their versions.
var install = sync.OnceValues(func() (string, error) {
	files := map[string][]byte{}
	version := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		files[name] = text
		version.Write(text)
	}
	parent := filepath.Join(testkit.Root(), "bin", "tools")
	dir := filepath.Join(parent, fmt.Sprintf("%x", version.Sum(nil)[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	partial, err := os.MkdirTemp(parent, "partial-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(partial, name), text, 0o644); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir, npm.WaitDelay = partial, 10*time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w: %.200s", err, out)
	}
	if err := os.Rename(partial, dir); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return "", err
	}
	return dir, nil
})

// command is a program of one of the packages, without telemetry.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join(packages(t), "node_modules", ".bin", name)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = 10 * time.Second // for its children, once it is killed
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_COLOR=1", "CI=true")
	return cmd
}

// run runs a program to its end and returns what it prints to standard output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := command(t, name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s\n%s", name, args, err, out, errs.String())
	}
	return string(out)
}

// serve starts the product with a new database.
func serve(t *testing.T, args ...string) *testkit.Server {
	t.Helper()
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
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func decode[T any](t *testing.T, text []byte) (value T) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v in %.2000s", err, text)
	}
	return value
}
