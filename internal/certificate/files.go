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
	reported  string // the error of the last attempt
}

// Open reads a chain of certificates and its key from PEM files.
func Open(cert, key string, log *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, log: log}
	if _, err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
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

// Run loads the files again when they change, and reports on them at each reload, until ctx ends. Files that are
// invalid, or changed only in part, leave the previous certificate in use.
func (f *Files) Run(ctx context.Context, reload <-chan os.Signal) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		requested := false
		select {
		case <-ctx.Done():
			return
		case <-reload:
			requested = true
		case <-tick.C:
		}
		f.check(requested)
	}
}

// check loads the files if they have changed, and logs an error once, or again if requested.
func (f *Files) check(requested bool) {
	loaded, err := f.load()
	if err != nil {
		if requested || err.Error() != f.reported {
			f.log.Warn("the previous certificate stays in use", "reason", err.Error())
		}
		f.reported = err.Error()
		return
	}
	f.reported = ""
	if requested && !loaded {
		f.log.Info("certificate unchanged", "file", f.cert)
	}
}

// load reports whether the files have changed and were loaded.
func (f *Files) load() (bool, error) {
	cert, certErr := os.ReadFile(f.cert)
	key, keyErr := os.ReadFile(f.key)
	if err := errors.Join(certErr, keyErr); err != nil {
		return false, err
	}
	text := string(cert) + "\n" + string(key)
	if text == f.text {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("%s and %s are not a certificate and its key: %w", f.cert, f.key, err)
	}
	f.text = text
	f.current.Store(&pair)
	logLoaded(f.log, &pair)
	return true, nil
}

func logLoaded(log *slog.Logger, c *tls.Certificate) {
	level, message := slog.LevelInfo, "certificate loaded"
	if time.Now().After(c.Leaf.NotAfter) {
		level, message = slog.LevelWarn, "the certificate has expired"
	}
	log.Log(context.Background(), level, message, "names", c.Leaf.DNSNames, "expires", c.Leaf.NotAfter)
}
