package testkit

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"plantstore/internal/testkit/missing"
)

// GoModule fetches another module and returns the folder of its files. It skips the test if it can't be fetched.
func GoModule(t testing.TB, path, version string) (dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", path+"@"+version)
	download.Dir, download.WaitDelay = os.TempDir(), 10*time.Second
	download.Env = append(os.Environ(), "GOFLAGS=")
	out, err := download.Output()
	var module struct{ Dir, Error string }
	json.Unmarshal(out, &module)
	if err != nil || module.Dir == "" {
		missing.Optional(t, "%s %s: %v: %.300s", path, version, err, module.Error)
	}
	return module.Dir
}
