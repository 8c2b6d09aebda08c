package client

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plantstore/test/testkit"
)

// A terminal sends Ctrl-C to plantstore and to its command, so plantstore does not pass it on: a command that has left
// the terminal gets none.
func TestSandboxAtTerminal(t *testing.T) {
	t.Parallel()
	const count = `n=0; trap 'n=$((n+1))' INT; echo up; until read line; do :; done; exit $n`
	for want, command := range [][]string{{"setsid", "sh", "-c", count}, {"sh", "-c", count}} {
		keyboard, terminal := openTerminal(t)
		cmd := sandboxCmd(t, append([]string{"--"}, command...)...)
		stdout := new(testkit.Output)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, stdout, stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testkit.WaitFor(t, "the command", func() bool { return stdout.String() == "up\n" })
		keyboard.WriteString("\x03")
		time.Sleep(100 * time.Millisecond) // a signal that is passed on would arrive
		keyboard.WriteString("end\n")
		cmd.Wait()
		if cmd.ProcessState.ExitCode() != want {
			t.Errorf("%q: %v, %s", command, cmd.ProcessState, stdout)
		}
	}
}

// The kernel sends SIGHUP to the leader of a session only, and kill sends SIGINT to one process.
func TestSandboxPassesSignalsAtTerminal(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string][]syscall.Signal{"HUP": {syscall.SIGHUP}, "INT": {syscall.SIGINT, syscall.SIGINT}} {
		_, terminal := openTerminal(t)
		cmd := sandboxCmd(t, "--", "sh", "-c", "trap 'exit 7' "+name+"; echo up; while :; do sleep 0.01; done")
		stdout := new(testkit.Output)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, stdout, stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testkit.WaitFor(t, "the command", func() bool { return stdout.String() == "up\n" })
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		testkit.WaitFor(t, "the command to end", func() bool { // a shell may lose one while it starts sleep
			for _, s := range sent {
				cmd.Process.Signal(s)
				time.Sleep(100 * time.Millisecond) // two of the same signal at once would be one
			}
			return len(ended) > 0
		})
		if cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("%s: %v, %s", name, cmd.ProcessState, stdout)
		}
	}
}

func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keyboard, terminal
}
