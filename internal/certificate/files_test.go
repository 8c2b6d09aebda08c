package certificate_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/certificate"
	"plantstore/test/testkit"
)

// log collects records.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// The files are loaded when their content changes, however that happens. An error is logged once.
func TestFiles(t *testing.T) { synctest.Test(t, testFiles) }

func testFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)) // the time of a file is not what counts
	}
	issue := func(name string) {
		t.Helper()
		c, k := testkit.Certificate(t, name)
		write(cert, c)
		write(key, k)
	}
	messages := new(log)
	logger := slog.New(slog.NewTextHandler(messages, nil))
	if _, err := certificate.Open(cert, key, logger); err == nil || !strings.Contains(err.Error(), cert) {
		t.Errorf("Open() of absent files: %v", err)
	}
	issue("first.example")
	files, err := certificate.Open(cert, key, logger)
	if err != nil {
		t.Fatal(err)
	}
	config := files.Config()
	name := func() string {
		c, err := config.GetCertificate(new(tls.ClientHelloInfo))
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.DNSNames[0]
	}
	if name() != "first.example" || config.MinVersion != tls.VersionTLS12 || messages.count("certificate loaded") != 1 {
		t.Errorf("%s, version %x", name(), config.MinVersion)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { files.Run(ctx) })

	issue("second.example")
	testkit.WaitFor(t, "the second certificate", func() bool { return name() == "second.example" })
	const kept = "the previous certificate stays in use"
	write(key, []byte("nonsense"))
	testkit.WaitFor(t, "the error", func() bool { return messages.count(kept) == 1 })
	time.Sleep(5 * time.Second) // two polls, which find the same error
	if n := messages.count(kept); n != 1 || name() != "second.example" {
		t.Errorf("the error is logged %d times, and %s is in use", n, name())
	}
	issue("third.example")
	testkit.WaitFor(t, "the third certificate", func() bool { return name() == "third.example" })
	cancel()
	running.Wait()
}
