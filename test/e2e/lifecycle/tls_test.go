package lifecycle

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// startTLS starts a server with certificate files in a folder, such as Kubernetes mounts: the files are links through
// a link to a folder, which is replaced.
func startTLS(t *testing.T, dir string) *testkit.Server {
	t.Helper()
	replaceCertificate(t, dir, "first.example")
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"),
		"--tls-cert", filepath.Join(dir, "tls.crt"), "--tls-key", filepath.Join(dir, "tls.key"))
}

// replaceCertificate swaps the folder that the links name for one with another certificate.
func replaceCertificate(t *testing.T, dir, name string) {
	t.Helper()
	cert, key := testkit.Certificate(t, name)
	swapFolder(t, dir, name, map[string][]byte{"tls.crt": cert, "tls.key": key})
}

func swapFolder(t *testing.T, dir, name string, files map[string][]byte) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link-"+name)
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// certificateName is the name in the certificate that a new connection gets.
func certificateName(t *testing.T, s *testkit.Server) string {
	t.Helper()
	c := s.Dial(t).(*tls.Conn)
	defer c.Close()
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState().PeerCertificates[0].DNSNames[0]
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := startTLS(t, t.TempDir())
	if !strings.HasPrefix(s.URL, "https://127.0.0.1:") || !strings.Contains(s.Stdout.String(), "curl -i https://") {
		t.Errorf("serves %s, and prints %s", s.URL, s.Stdout)
	}
	testkit.WantResponse(t, "create", s.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
	if a, err := s.Send("GET", "/openapi.json", ""); err != nil || !strings.Contains(a.Body, `"`+s.URL+`"`) {
		t.Errorf("the description does not name the address; %v", err)
	}

	// The command line trusts the authority that SSL_CERT_FILE names, and no other without it.
	env := []string{"PLANTSTORE_URL=" + s.URL, "PLANTSTORE_TOKEN=" + s.Token, "SSL_CERT_FILE=" + testkit.AuthorityFile(t)}
	out, stderr, code := testkit.Run(t, env, "plants", "get", "1", "--json")
	if code != 0 || !strings.Contains(out, `"x"`) {
		t.Errorf("plants get: exit %d, %s%s", code, out, stderr)
	}
	_, stderr, code = testkit.Run(t, env[:2], "plants", "get", "1")
	if code != 5 || !strings.HasSuffix(stderr, "signed by unknown authority; "+
		"to trust another authority, set SSL_CERT_FILE to its certificate\n") {
		t.Errorf("plants get without trust: exit %d, %s", code, stderr)
	}

	// The API is not the health check: a response through TLS shows that the certificate was accepted.
	_, stderr, code = testkit.Run(t, env, "health", "--url", s.URL)
	if code != 1 || !strings.Contains(stderr, "is not the health check of a Plant Store: it returned 404") {
		t.Errorf("health of the API: exit %d, %s", code, stderr)
	}
	testkit.WaitFor(t, "plantstore health", func() bool {
		out, _, code := testkit.Run(t, nil, "health", "--url", s.Ops)
		return code == 0 && out == "ready\n"
	})

	wantVersions(t, s)
	plain, err := http.Get("http://" + s.Address() + "/plants")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Body.Close()
	text, _ := io.ReadAll(plain.Body)
	if plain.StatusCode != 400 || !strings.Contains(string(text), `40024,"message":"the service accepts only TLS;`) {
		t.Errorf("without TLS: %d %s", plain.StatusCode, text)
	}
}

// wantVersions connects with several versions of TLS and of HTTP.
func wantVersions(t *testing.T, s *testkit.Server) {
	t.Helper()
	for name, test := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"TLS 1.1":       {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "protocol version"},
		"HTTP/2 alone":  {&tls.Config{NextProtos: []string{"h2"}}, "no application protocol"},
		"TLS 1.2":       {&tls.Config{MaxVersion: tls.VersionTLS12}, ""},
		"both versions": {&tls.Config{NextProtos: []string{"h2", "http/1.1"}}, ""},
	} {
		test.config.InsecureSkipVerify = true
		c := tls.Client(s.DialPlain(t), test.config)
		defer c.Close()
		err := c.Handshake()
		if err == nil != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if name == "both versions" && c.ConnectionState().NegotiatedProtocol != "http/1.1" {
			t.Errorf("%s: %s", name, c.ConnectionState().NegotiatedProtocol)
		}
	}
}

// A new certificate is used by new connections, and an existing connection stays open. Files that can't be loaded leave
// the previous certificate in use, and the reason is logged once.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startTLS(t, dir)
	c := s.Connect(t)
	create := func(id int) {
		t.Helper()
		if a := c.Create(id, "x"); a.Status != 200 {
			t.Errorf("plant %d: %d %s", id, a.Status, a.Body)
		}
	}
	create(1)
	replaceCertificate(t, dir, "second.example")
	testkit.WaitFor(t, "the second certificate", func() bool { return certificateName(t, s) == "second.example" })
	create(2)

	cert, _ := testkit.Certificate(t, "other.example")
	swapFolder(t, dir, "no-key", map[string][]byte{"tls.crt": cert})
	s.WaitLogged(t, "tls.key: no such file")
	time.Sleep(5 * time.Second) // the files are read twice
	if n := strings.Count(s.Stderr.String(), "the previous certificate stays in use"); n != 1 {
		t.Errorf("the reason is logged %d times", n)
	}
	if name := certificateName(t, s); name != "second.example" {
		t.Errorf("without a key: the certificate is that of %s", name)
	}
	s.Signal(syscall.SIGHUP) // as tools that renew certificates do
	replaceCertificate(t, dir, "third.example")
	testkit.WaitFor(t, "the third certificate", func() bool { return certificateName(t, s) == "third.example" })
	create(3)
	if code := s.Stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
