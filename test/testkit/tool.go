package testkit

import (
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
	"time"

	"plantstore/test/testkit/missing"
)

// GoTool builds a program of another module, such as example.com/tool/cmd/tool, once below bin/tools and returns its
// path. It skips the test if the module can't be fetched.
func GoTool(t testing.TB, program, version string) string {
	t.Helper()
	dir := filepath.Join(Root(), "bin", "tools", path.Base(program)+"-"+version)
	file := filepath.Join(dir, path.Base(program))
	if _, err := os.Stat(file); err == nil {
		return file
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "go", "install", program+"@"+version)
	install.Dir, install.WaitDelay = os.TempDir(), 10*time.Second
	install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0", "GOTOOLCHAIN=auto")
	if out, err := install.CombinedOutput(); err != nil {
		missing.Optional(t, "%s: %v: %.300s", program, err, out)
	}
	return file
}
