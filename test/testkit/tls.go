package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs the certificates of tests. The clients of this package trust it.
var authority = newAuthority()

type certificateAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority() certificateAuthority {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Plant Store tests"},
		NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	a := certificateAuthority{key: key, pool: x509.NewCertPool()}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		panic(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

// ClientTLS returns the configuration of a client that trusts the certificates of tests.
func ClientTLS() *tls.Config { return &tls.Config{RootCAs: authority.pool} }

// Certificate issues a certificate for a name and for 127.0.0.1, and returns it and its key in PEM.
func Certificate(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(0, 3, 0), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, authority.cert, private.Public(), authority.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// TLS issues a certificate and returns the arguments of a server that uses it.
func TLS(t testing.TB) (args []string) {
	t.Helper()
	cert, key := Certificate(t, "plants.example")
	return []string{"--tls-cert", writeFile(t, "cert.pem", cert), "--tls-key", writeFile(t, "key.pem", key)}
}

// AuthorityFile returns the path of the certificate that signs those of tests, for SSL_CERT_FILE.
func AuthorityFile(t testing.TB) string {
	t.Helper()
	return writeFile(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.cert.Raw}))
}

func writeFile(t testing.TB, name string, text []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// OnEachTransport runs a test without TLS and with it. args are further arguments of the server.
func OnEachTransport(t *testing.T, test func(t *testing.T, args []string)) {
	t.Run("http", func(t *testing.T) { test(t, nil) })
	t.Run("https", func(t *testing.T) { test(t, TLS(t)) })
}
