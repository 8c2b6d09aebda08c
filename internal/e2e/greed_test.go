package e2e

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A signal to stop is obeyed without a complaint at whatever moment of the start it comes.
func TestStopWhileStarting(t *testing.T) {
	start := func() *process {
		return launch(t, exec.Command(binary, "serve", "--db", filepath.Join(t.TempDir(), "plants.db"), "--listen", "127.0.0.1:0", "--ops-listen", "off"))
	}
	began := time.Now()
	p := start()
	p.waitUntilUp()
	took := time.Since(began)
	if code := p.stop(20 * time.Second); code != 0 {
		t.Fatalf("exit %d after a whole start", code)
	}
	early := 0
	const moments = 40
	for n := range moments {
		p := start()
		time.Sleep(took * time.Duration(n) / moments) // the moment that is tested
		code := p.stop(20 * time.Second)
		if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() && status.Signal() == syscall.SIGTERM {
			early++ // the process had not begun to listen to signals
			continue
		}
		if code != 0 {
			t.Errorf("the signal came after %v of about %v: exit %d\n%s", took*time.Duration(n)/moments, took, code, p.stderr)
		}
	}
	if early == moments {
		t.Error("no start came as far as to listen to signals")
	}
}
