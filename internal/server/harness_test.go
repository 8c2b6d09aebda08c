package server_test

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"plantstore/internal/server"
	"plantstore/internal/storage"
	"plantstore/internal/storage/sqlite"
	"plantstore/test/testkit"
)

const (
	credential = "a-fixed-token-for-tests"
	waitLimit  = 30 * time.Second
)

func openStorage(t *testing.T) *sqlite.Storage {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "plants.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// running is a service in this process.
type running struct {
	url, health string
	out, log    testkit.Output
	stop        context.CancelFunc
	ended       chan error
}

// start runs a service with defaults for what cfg leaves out, and stops it when the test ends.
func start(t *testing.T, cfg server.Config, st storage.Storage) *running {
	t.Helper()
	s := &running{ended: make(chan error, 1)}
	cfg.Listen, cfg.OpsListen = "127.0.0.1:0", cmp.Or(cfg.OpsListen, "127.0.0.1:0")
	cfg.MaxBody, cfg.Token = 1<<10, credential
	cfg.Drain = cmp.Or(cfg.Drain, 5*time.Second)
	cfg.Out, cfg.Log = &s.out, slog.New(slog.NewJSONHandler(&s.log, nil))
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.ended <- server.Run(ctx, cfg, st) }()
	t.Cleanup(func() {
		stop()
		select {
		case <-s.ended:
		case <-time.After(waitLimit):
			t.Error("the service does not stop")
		}
	})
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	s.url = address.FindString(s.logged(t, `"serving"`))
	if cfg.OpsListen != "off" {
		s.health = address.FindString(s.logged(t, `"ops port"`))
	}
	return s
}

// end stops the service and returns what Run returned.
func (s *running) end(t *testing.T) error {
	t.Helper()
	s.stop()
	select {
	case err := <-s.ended:
		s.ended <- nil
		return err
	case <-time.After(waitLimit):
		t.Fatal("the service does not stop")
		return nil
	}
}

// logged waits for a line of the log that has the words.
func (s *running) logged(t *testing.T, words string) string {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for line := range strings.Lines(s.log.String()) {
			if strings.Contains(line, words) {
				return line
			}
		}
	}
	t.Fatalf("the log has no %s:\n%s", words, s.log.String())
	return ""
}

// send returns the status of a request.
func (s *running) send(ctx context.Context, method, path, body string, headers ...string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+credential)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = new(bytes.Buffer).ReadFrom(response.Body)
	return response.StatusCode, err
}
