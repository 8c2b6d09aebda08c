package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/server"
	"plantstore/internal/store"
)

// hanging is a store whose check returns when the test ends.
type hanging struct {
	store.Store
	end chan struct{}
}

func (h hanging) Check(context.Context) error {
	<-h.end
	return nil
}

// While the check of a database hangs, probes of /readyz get a response and leave connections for /livez. Further
// probes are refused, and the log names the limit.
func TestHealthWhileTheDatabaseHangs(t *testing.T) {
	database := hanging{openStore(t), make(chan struct{})}
	s := start(t, server.Config{}, database)
	defer close(database.end)

	prober := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waitLimit}
	probe := func(path string, status int, words string) {
		response, err := prober.Get(s.health + path)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		if response.StatusCode != status || !strings.Contains(string(body), words) {
			t.Errorf("%s = %d %q, want %d and %q", path, response.StatusCode, body, status, words)
		}
	}
	for range 3 { // more in all than the limit, and few at a time: those before may not be closed yet
		time.Sleep(20 * time.Millisecond)
		var probes sync.WaitGroup
		for range 2 {
			probes.Go(func() { probe("/readyz", 503, "has not responded") })
		}
		probe("/livez", 200, "alive")
		probes.Wait()
	}

	if runtime.GOOS != "linux" { // elsewhere connections wait instead of being refused
		return
	}
	time.Sleep(20 * time.Millisecond)
	var incomplete []net.Conn
	for range 20 { // they requests are not evicted at once
		c, err := net.Dial("tcp", strings.TrimPrefix(s.health, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		incomplete = append(incomplete, c)
		io.WriteString(c, "GET /livez")
	}
	line := s.logged(t, `"refused connections"`)
	if !strings.Contains(line, `"limit":8,"reason":"all connections that health allows are in use"`) {
		t.Errorf("the log has %s", line)
	}
	for _, c := range incomplete {
		c.Close()
	}
	waitAlive(t, prober, s.health+"/livez")
}

// waitAlive waits until a probe is not refused.
func waitAlive(t *testing.T, prober *http.Client, url string) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if response, err := prober.Get(url); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
	}
	t.Errorf("%s is refused after %v", url, waitLimit)
}

// Readiness fails from the signal to stop on.
func TestHealthWhileStopping(t *testing.T) {
	st := &slowStore{Store: openStore(t), entered: make(chan context.Context, 1), release: make(chan struct{})}
	s := start(t, server.Config{Drain: time.Minute}, st)
	go s.send(context.Background(), "POST", "/plants", `{"id":1,"name":"x"}`)
	<-st.entered
	ready := func() string {
		response, err := http.Get(s.health + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	if got := ready(); got != "ready\n" {
		t.Errorf("before the signal: %q", got)
	}
	s.stop()
	s.logged(t, `"stopping"`)
	for deadline := time.Now().Add(waitLimit); !strings.Contains(ready(), "stopping"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after the signal: %q", ready())
		}
	}
	close(st.release)
	if err := s.end(t); err != nil {
		t.Errorf("Run() = %v", err)
	}
}
