package pgtest

import (
	"net"
	"testing"
)

// A port that somebody took between the choice and the start costs another choice, not the test.
func TestPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	s := Start(t, nil)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	choices := 0
	err = s.startAt(func() (int, error) {
		if choices++; choices < 3 {
			return port, nil
		}
		return freePort()
	})
	if err != nil || choices != 3 || s.Port == port {
		t.Fatalf("startAt() = %v after %d choices, at port %d", err, choices, s.Port)
	}
	s.Exec(t, "SELECT 1")
	// At its port it starts again: what the log says of others is past.
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Error(err)
	}
}
