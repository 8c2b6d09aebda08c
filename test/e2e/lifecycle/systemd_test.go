//go:build linux

package lifecycle

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// The service tells systemd that it is ready when it accepts requests, that it is alive whatever the state of the
// database, and that it stops. Secrets are read from the files of credentials.
func TestNotify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := filepath.Join(dir, "plants.db")
	for name, text := range map[string]string{"token": testkit.FixedToken + "\n", "db": db + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dir, "socket")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	receive := func() string {
		t.Helper()
		b := make([]byte, 4096)
		socket.SetReadDeadline(time.Now().Add(testkit.Deadline))
		n, err := socket.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	cmd := testkit.Serve("unused")
	cmd.Args = append(cmd.Args[:2], cmd.Args[4:]...) // without --db
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=200000",
		"PLANTSTORE_DB_FILE="+filepath.Join(dir, "db"), "PLANTSTORE_FIXED_TOKEN_FILE="+filepath.Join(dir, "token"))
	s := testkit.Launch(t, cmd)
	if got, want := receive(), "READY=1\nSTATUS=serving"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	s.WaitServing()
	s.Token = testkit.FixedToken
	testkit.WantResponse(t, "create", s.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
	if got := receive(); got != "WATCHDOG=1" {
		t.Errorf("then %q", got)
	}
	if err := os.Rename(db, db+".gone"); err != nil { // the database fails until a restart
		t.Fatal(err)
	}
	s.WaitReady(t, false)
	for range 10 { // more than were sent before
		if got := receive(); got != "WATCHDOG=1" {
			t.Errorf("without a database: %q", got)
		}
	}
	if err := os.Rename(db+".gone", db); err != nil {
		t.Fatal(err)
	}
	s.Signal(15)
	got := receive()
	for got == "WATCHDOG=1" {
		got = receive()
	}
	if !strings.HasPrefix(got, "STOPPING=1\nSTATUS=") {
		t.Errorf("after SIGTERM: %q", got)
	}
	s.WaitExit()
}
