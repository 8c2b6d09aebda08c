package systemd

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestInherit(t *testing.T) {
	three, four := net.Listener(&net.TCPListener{}), net.Listener(&net.TCPListener{})
	open := func(fd int) (net.Listener, error) {
		switch fd {
		case 3:
			return three, nil
		case 4:
			return four, nil
		}
		return nil, errors.New("unexpected descriptor")
	}
	for _, c := range []struct {
		count, names string
		public, ops  net.Listener
		err          string
	}{
		{"1", "", three, nil, ""},
		{"1", "http", three, nil, ""},
		{"1", "ops", nil, three, ""},
		{"2", "", three, four, ""},
		{"2", "plantstore.socket:plantstore.socket", three, four, ""},
		{"2", "http:ops", three, four, ""},
		{"2", "ops:http", four, three, ""},
		{"2", "ops", four, three, ""},
		{"2", "ops:ops", nil, nil, `LISTEN_FDNAMES is "ops:ops": it must name http and ops once each`},
		{"2", "http:http", nil, nil, `LISTEN_FDNAMES is "http:http": it must name http and ops once each`},
		{"0", "", nil, nil, `LISTEN_FDS is "0": it must be 1 or 2, for the service and for health`},
		{"3", "", nil, nil, `LISTEN_FDS is "3": it must be 1 or 2, for the service and for health`},
		{"all", "", nil, nil, `LISTEN_FDS is "all": it must be 1 or 2, for the service and for health`},
	} {
		public, ops, err := inherit(c.count, c.names, open)
		if public != c.public || ops != c.ops || err != nil != (c.err != "") || err != nil && err.Error() != c.err {
			t.Errorf("inherit(%q, %q) = %v, %v, %v", c.count, c.names, public, ops, err)
		}
	}
	fails := func(int) (net.Listener, error) { return nil, net.ErrClosed }
	if _, _, err := inherit("1", "", fails); !errors.Is(err, net.ErrClosed) {
		t.Errorf("inherit() of a descriptor that can't be opened = %v", err)
	}
}

// The variables of another process, such as a parent's, do not count, and all are removed.
func TestInheritedByAnotherProcess(t *testing.T) {
	for _, pid := range []string{"", "1", strconv.Itoa(os.Getpid())} {
		env := map[string]string{"LISTEN_PID": pid, "LISTEN_FDS": "3", "LISTEN_FDNAMES": "http"}
		for name, value := range env {
			t.Setenv(name, value)
		}
		public, ops, err := Inherit(os.Getenv)
		if mine := pid != "" && pid != "1"; public != nil || ops != nil || err != nil != mine {
			t.Errorf("LISTEN_PID=%s: Inherit() = %v, %v, %v", pid, public, ops, err)
		}
		for name := range env {
			if _, set := os.LookupEnv(name); set {
				t.Errorf("LISTEN_PID=%s: %s is still set", pid, name)
			}
		}
	}
	t.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	if public, ops, err := Inherit(os.Getenv); public != nil || ops != nil || err != nil {
		t.Errorf("without LISTEN_FDS: Inherit() = %v, %v, %v", public, ops, err)
	}
}

func TestInheritedListener(t *testing.T) {
	folder := t.TempDir()
	unix, err := net.Listen("unix", folder+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	text := folder + "/text"
	if err := os.WriteFile(text, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		of  interface{ File() (*os.File, error) }
		err string
	}{
		"TCP":    {tcp.(*net.TCPListener), ""},
		"unix":   {unix.(*net.UnixListener), "is not a TCP listener: it listens on unix"},
		"a file": {path(text), "is not a TCP listener: "},
	} {
		file, err := c.of.File()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := syscall.Dup(int(file.Fd()))
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		l, err := inheritedListener(fd)
		if c.err == "" {
			if err != nil || l.Addr().String() != tcp.Addr().String() {
				t.Fatalf("%s: inheritedListener() = %v, %v", name, l, err)
			}
			l.Close()
		} else if err == nil || !strings.Contains(err.Error(), "descriptor "+strconv.Itoa(fd)+" of LISTEN_FDS "+c.err) {
			t.Errorf("%s: inheritedListener() = %v", name, err)
		}
		if err := syscall.Fstat(fd, new(syscall.Stat_t)); err != syscall.EBADF {
			t.Errorf("%s: descriptor %d: %v, want it closed", name, fd, err)
		}
	}
	if _, err := inheritedListener(-1); err == nil || err.Error() != "descriptor -1 of LISTEN_FDS is not open" {
		t.Errorf("inheritedListener(-1) = %v", err)
	}
}

type path string

func (p path) File() (*os.File, error) { return os.Open(string(p)) }
