package client

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// A list ends silently when its reader closes the pipe, like any filter.
func TestListToAClosedPipe(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, testkit.Engines[0].Database(t))
	for id := range 1500 { // more than fits into a pipe
		p.Create(t, fmt.Sprintf(`{"id":%d,"name":"%s"}`, id, strings.Repeat("x", 100)))
	}
	for _, form := range []string{"--json", "--json=false"} {
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
		if cmd.Wait(); stderr.String() != "" || cmd.ProcessState.ExitCode() != -1 { // ended by SIGPIPE
			t.Errorf("list %s to a closed pipe: %v, %s", form, cmd.ProcessState, stderr)
		}
	}
}
