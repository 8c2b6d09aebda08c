// Package certificate provides the certificate of a TLS server: from files that are read again when they change, or
// from an ACME server.
package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// pollInterval is how often the files are read. Comparing what they contain finds every way of replacing them.
const pollInterval = 2 * time.Second

// Files is a certificate that is read from two files.
type Files struct {
	cert, key string
	log       *slog.Logger
	current   atomic.Pointer[tls.Certificate]
	text      string // of both files, when current was loaded
}

// Open reads a chain of certificates and its key from PEM files.
func Open(cert, key string, log *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, log: log}
	return f, f.load()
}

// Config returns the configuration of a server that uses the certificate loaded last.
func (f *Files) Config() *tls.Config {
	return config(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current.Load(), nil })
}

// Expiry returns when the certificate in use expires.
func (f *Files) Expiry() time.Time { return f.current.Load().Leaf.NotAfter }

func config(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: get}
}

// Run loads the files again when they change, until ctx ends. Files that are invalid, or changed only in part, leave
// the previous certificate in use; the reason is logged once.
func (f *Files) Run(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var reported error
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := f.load()
		if err != nil && fmt.Sprint(err) != fmt.Sprint(reported) {
			f.log.Warn("the previous certificate stays in use", "reason", err.Error())
		}
		reported = err
	}
}

// load loads the files if they have changed.
func (f *Files) load() error {
	cert, certErr := os.ReadFile(f.cert)
	key, keyErr := os.ReadFile(f.key)
	if err := errors.Join(certErr, keyErr); err != nil {
		return err
	}
	text := string(cert) + "\n" + string(key)
	if text == f.text {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s are not a certificate and its key: %w", f.cert, f.key, err)
	}
	f.text = text
	f.current.Store(&pair)
	logLoaded(f.log, &pair)
	return nil
}

func logLoaded(log *slog.Logger, c *tls.Certificate) {
	level, message := slog.LevelInfo, "certificate loaded"
	if time.Now().After(c.Leaf.NotAfter) {
		level, message = slog.LevelWarn, "the certificate has expired"
	}
	log.Log(context.Background(), level, message, "names", c.Leaf.DNSNames, "expires", c.Leaf.NotAfter)
}
