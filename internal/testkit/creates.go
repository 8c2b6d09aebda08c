package testkit

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"plantstore/internal/testkit/measure"
)

var loadCommand = sync.OnceValues(func() (string, error) {
	return BuildCommand("load", "plantstore/internal/testkit/load")
})

// Creates sends creates to a server from another process, and fails the test if one fails. The arguments are those of
// testkit/load.
func Creates(t testing.TB, s *Server, args ...string) (r measure.Report) {
	t.Helper()
	load, err := loadCommand()
	if err != nil {
		t.Fatal(err)
	}
	fixed := []string{
		"-address", strings.TrimPrefix(s.URL, "http://"), "-token", s.Token, "-pids", strconv.Itoa(s.Cmd.Process.Pid),
	}
	out, err := exec.CommandContext(t.Context(), load, append(fixed, args...)...).Output()
	if err := errors.Join(err, json.Unmarshal(out, &r)); err != nil || r.Bad > 0 {
		t.Fatalf("load: %v, %d failed: %s", err, r.Bad, r.Reason)
	}
	return r
}
