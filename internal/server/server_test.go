package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/server"
	"plantstore/internal/store/sqlite"
)

const credential = "a-fixed-token-for-tests"

// Everything at once, in one process, where the race detector sees all of it: creates of new and of the
// same ids, reads, edits, wrong requests, clients that go away, and a stop in the middle.
func TestMixedLoad(t *testing.T) {
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "plants.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var out, log synced
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- server.Run(ctx, server.Config{
			Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Drain: 5 * time.Second, Token: credential,
			Config: httpapi.Config{MaxBody: 1 << 10, AccessLog: httpapi.LogAll}, Out: &out, Log: slog.New(slog.NewJSONHandler(&log, nil)),
		}, st)
	}()
	address := regexp.MustCompile(`http://\S+`)
	for !strings.Contains(log.String(), `"serving"`) {
		time.Sleep(time.Millisecond)
	}
	base := address.FindString(out.String())

	var clients sync.WaitGroup
	end := time.Now().Add(time.Second)
	for n := range 16 {
		clients.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				id := (n/2)*1_000_000 + i // two clients share each id
				path, method, body := fmt.Sprintf("/plants/%d", id), "GET", ""
				switch i % 5 {
				case 0, 1:
					path, method, body = "/plants", "POST", fmt.Sprintf(`{"id":%d,"name":"n%d"}`, id, n)
				case 2:
					method, body = "PUT", `{"name":"other"}`
				case 3:
					method = "DELETE"
				}
				ctx, cancel := context.WithCancel(context.Background())
				if i%7 == 0 {
					time.AfterFunc(time.Millisecond, cancel) // goes away
				}
				status, err := ask(ctx, method, base+path, body)
				cancel()
				if err == nil && (status >= 500 || status < 200) {
					t.Errorf("%s %s: %d", method, path, status)
				}
			}
		})
	}
	clients.Wait()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run() = %v", err)
	}
	if strings.Contains(log.String(), "panic") {
		t.Error("a panic is in the log")
	}
}

func ask(ctx context.Context, method, url, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+credential)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// synced is a buffer that can be read while it is written.
type synced struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *synced) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Every file that a document links to is there, and every flag that the README names exists.
func TestDocuments(t *testing.T) {
	pages, err := filepath.Glob("../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for _, page := range append(pages, more...) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	serve, err := os.ReadFile("../../cmd/plantstore/serve.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)`").FindAllStringSubmatch(string(readme), -1) {
		if m[1] != "db" && !strings.Contains(string(serve), `"`+m[1]+`"`) {
			t.Errorf("README names --%s, which serve does not have", m[1])
		}
	}
}
