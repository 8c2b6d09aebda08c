package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"golang.org/x/net/idna"

	"plantstore/internal/certificate"
	"plantstore/internal/server"
)

const defaultCache = "plantstore-acme"

type tlsFlags struct {
	cert, key               string
	domains                 []string
	cache, email, directory string
}

func (o *tlsFlags) declare(f *flags) {
	f.StringVar(&o.cert, "tls-cert", "",
		"`path` of a certificate and its chain in PEM, to serve HTTPS;\nread again when it changes")
	f.StringVar(&o.key, "tls-key", "", "`path` of the private key of --tls-cert in PEM")
	f.StringSliceVar(&o.domains, "acme-domain", nil,
		"`names` of the service, separated by commas, to serve HTTPS\nwith certificates from an ACME server, whose terms "+
			"are accepted;\nit must reach port 443 of each name")
	f.StringVar(&o.cache, "acme-cache", defaultCache, "`path` of a folder for the account and the certificates")
	f.StringVar(&o.email, "acme-email", "", "email `address` for messages from the ACME server")
	f.StringVar(&o.directory, "acme-directory", "", "`URL` of the ACME server\n(default: Let's Encrypt)")
}

func (o *tlsFlags) enabled() bool { return o.cert != "" || o.key != "" || len(o.domains) > 0 }

func (o *tlsFlags) check() error {
	if (o.cert == "") != (o.key == "") {
		return usagef("--tls-cert and --tls-key must be set together")
	}
	if o.cert != "" && len(o.domains) > 0 {
		return usagef("--tls-cert and --acme-domain are both set: use one of them")
	}
	for i, d := range o.domains {
		name, err := idna.Lookup.ToASCII(strings.TrimSuffix(d, ".")) // as in the certificate and in a handshake
		o.domains[i] = name
		if err != nil || !strings.Contains(name, ".") || strings.Contains("."+name, "..") || net.ParseIP(name) != nil {
			return usagef("--acme-domain is %q: use a host name such as plants.example", d)
		}
	}
	if len(o.domains) == 0 && (o.email != "" || o.directory != "" || o.cache != defaultCache) {
		return usagef("--acme-email, --acme-cache and --acme-directory need --acme-domain, which is not set")
	}
	if o.directory != "" && !strings.HasPrefix(o.directory, "https://") {
		return usagef("--acme-directory is %q: use a URL that starts with https://", o.directory)
	}
	return nil
}

// configure sets what a server needs for TLS, if it is enabled, and returns a function that keeps certificates up to
// date until its context ends. It is to be called when the service accepts connections, which an ACME server needs.
func (o *tlsFlags) configure(cfg *server.Config) (run func(context.Context), err error) {
	if err := o.check(); err != nil || !o.enabled() {
		return func(context.Context) {}, err
	}
	if len(o.domains) > 0 {
		all, err := certificate.NewACME(o.domains, o.cache, o.email, o.directory, cfg.Log)
		if err != nil {
			return nil, fmt.Errorf("--acme-cache: %w", err)
		}
		cfg.TLS, cfg.CertificateExpiry = all.Config(), all.Expiry
		return all.Run, nil
	}
	files, err := certificate.Open(o.cert, o.key, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	cfg.TLS, cfg.CertificateExpiry = files.Config(), files.Expiry
	return files.Run, nil
}

// baseURL returns the default of --base-url: the first of the domains, if there are any.
func (o *tlsFlags) baseURL(listen string) string {
	if len(o.domains) == 0 {
		return ""
	}
	if _, port, _ := net.SplitHostPort(listen); port != "443" && port != "" {
		return "https://" + net.JoinHostPort(o.domains[0], port)
	}
	return "https://" + o.domains[0]
}
