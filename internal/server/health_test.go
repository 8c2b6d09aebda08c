package server_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/server"
	"plantstore/internal/store"
	"plantstore/internal/store/sqlite"
)

// hanging is a store whose database does not answer whether it is well.
type hanging struct {
	store.Store
	end chan struct{}
}

func (h hanging) Check(context.Context) error {
	<-h.end
	return nil
}

// While a database hangs, probes of /readyz are answered, and leave room for /livez. Where there is none
// the log names the bound that was met.
func TestHealthWhileTheDatabaseHangs(t *testing.T) {
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "plants.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	database := hanging{st, make(chan struct{})}
	var log synced
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- server.Run(ctx, server.Config{
			Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Drain: 5 * time.Second, Token: credential,
			Config: httpapi.Config{MaxBody: 1 << 10}, Out: io.Discard, Log: slog.New(slog.NewJSONHandler(&log, nil)),
		}, database)
	}()
	defer func() {
		close(database.end)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	}()
	logged := func(words string) string {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, words) {
					return line
				}
			}
		}
		t.Fatalf("the log never says %s:\n%s", words, log.String())
		return ""
	}
	logged(`"serving"`)
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(logged(`"health"`))

	prober := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	probe := func(path string, status int, words string) {
		response, err := prober.Get("http://" + address + path)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		if body, _ := io.ReadAll(response.Body); response.StatusCode != status || !strings.Contains(string(body), words) {
			t.Errorf("%s = %d %q, want %d and %q", path, response.StatusCode, body, status, words)
		}
	}
	for range 6 { // more in all than there is room for at once, and few at a time: those before may not be closed yet
		time.Sleep(20 * time.Millisecond)
		var probes sync.WaitGroup
		for range 2 {
			probes.Go(func() { probe("/readyz", 503, "has not responded") })
		}
		probe("/livez", 200, "alive")
		probes.Wait()
	}
	time.Sleep(20 * time.Millisecond)
	probe("/livez", 200, "alive")

	if runtime.GOOS != "linux" { // elsewhere nobody is refused: they wait with the kernel
		return
	}
	for range 20 { // requests that have begun do not give way
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "GET /livez")
	}
	if line := logged(`"refused connections"`); strings.Contains(line, "max-conns") || !strings.Contains(line, "all connections that health allows are in use") || !strings.Contains(line, `"limit":8`) {
		t.Errorf("the log says %s", line)
	}
}
