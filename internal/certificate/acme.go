package certificate

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
)

const (
	checkInterval = 65 * time.Second // for a renewed certificate; after a failure, autocert fails for a minute
	maxPause      = time.Hour        // between attempts; ACME servers limit how many may fail
)

// ACME is one certificate for each of some domains, obtained from an ACME server. The server verifies a domain on the
// port of the service itself (TLS-ALPN-01).
type ACME struct {
	manager *autocert.Manager
	domains []string
	log     *slog.Logger

	mu      sync.RWMutex
	current map[string]*tls.Certificate // by domain
}

// NewACME prepares certificates for domains. They and the account are kept in the folder cache, which is created if it
// does not exist. If directory is empty, the server is Let's Encrypt.
func NewACME(domains []string, cache, email, directory string, log *slog.Logger) (*ACME, error) {
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return nil, err
	}
	return &ACME{
		domains: domains, log: log, current: map[string]*tls.Certificate{},
		manager: &autocert.Manager{
			Prompt: autocert.AcceptTOS, HostPolicy: autocert.HostWhitelist(domains...), Cache: autocert.DirCache(cache),
			Email: email, Client: &acme.Client{DirectoryURL: directory, UserAgent: "plantstore"},
		},
	}, nil
}

// Config returns the configuration of a server that uses the certificates. A handshake never waits for the ACME server:
// it fails while a domain has no certificate. With autocert alone, each handshake could start an attempt, and an ACME
// server limits how many attempts may fail.
func (a *ACME) Config() *tls.Config {
	c := config(a.get)
	c.NextProtos = append(c.NextProtos, acme.ALPNProto)
	return c
}

func (a *ACME) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(hello.ServerName)
	if name == "" {
		name = a.domains[0]
	}
	if slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto}) && slices.Contains(a.domains, name) {
		return a.manager.GetCertificate(hello)
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if c := a.current[name]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no certificate for %q", name)
}

// Expiry returns when the first of the certificates in use expires, or the zero time if there is none yet.
func (a *ACME) Expiry() (first time.Time) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, c := range a.current {
		if first.IsZero() || c.Leaf.NotAfter.Before(first) {
			first = c.Leaf.NotAfter
		}
	}
	return first
}

// Run obtains and renews the certificates until ctx ends.
func (a *ACME) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, domain := range a.domains {
		all.Go(func() {
			for pause := checkInterval; ; {
				if err := a.update(domain); err != nil {
					a.log.Warn("no certificate was obtained", "domain", domain, "reason", err.Error(), "retry", pause.String())
				} else {
					pause = checkInterval
				}
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					return
				}
				pause = min(2*pause, maxPause)
			}
		})
	}
	all.Wait()
}

// update takes the certificate of a domain from the cache or the ACME server.
func (a *ACME) update(domain string) error {
	c, err := a.manager.GetCertificate(&tls.ClientHelloInfo{
		ServerName: domain, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, // for an ECDSA key
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.current[domain]; old == nil || !old.Leaf.Equal(c.Leaf) {
		a.current[domain] = c
		logLoaded(a.log, c)
	}
	return nil
}
