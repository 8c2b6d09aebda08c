package lifecycle

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// acmeServer is Pebble, the test server of Let's Encrypt. It verifies domains, which all resolve to 127.0.0.1, at the
// port of the service.
type acmeServer struct {
	*testkit.Server
	directory string
	env       []string // of processes that trust it
}

func startACME(t *testing.T, service string) acmeServer {
	t.Helper()
	pebble := testkit.GoTool(t, "github.com/letsencrypt/pebble/v2/cmd/pebble", "v2.10.1")
	dir, address := t.TempDir(), testkit.FreeAddress(t)
	_, port, _ := net.SplitHostPort(service)
	tlsPort, _ := strconv.Atoi(port)
	own := testkit.TLS(t)
	text, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": address, "certificate": own[1], "privateKey": own[3], "httpPort": 1, "tlsPort": tlsPort,
		"retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles":   map[string]any{"default": map[string]any{"description": "x", "validityPeriod": 7776000}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "pebble.json")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(pebble, "-config", config, "-dnsserver", serveDNS(t))
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1")
	a := acmeServer{testkit.Launch(t, cmd), "https://" + address + "/dir",
		append(os.Environ(), "SSL_CERT_FILE="+testkit.AuthorityFile(t))}
	testkit.WaitFor(t, "Pebble", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return a
}

// serveDNS responds, over TCP, to every question for an A record with 127.0.0.1, and to others with nothing.
func serveDNS(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var length [2]byte
				if _, err := io.ReadFull(c, length[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(length[:]))
				if _, err := io.ReadFull(c, query); err == nil {
					response := resolve(query)
					c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(response))), response...))
				}
			}()
		}
	}()
	return l.Addr().String()
}

func resolve(query []byte) (response []byte) {
	end := 12 // of the header
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 5 // the end of the name, type and class
	response = append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	if query[end-3] == 1 && query[end-4] == 0 { // type A
		response[7] = 1
		response = append(response, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
	}
	return response
}

// start starts a service with certificates of the ACME server.
func (a acmeServer) start(t *testing.T, listen, cache string) *testkit.Server {
	t.Helper()
	cmd := testkit.Serve(filepath.Join(t.TempDir(), "plants.db"), "--listen", listen, "--acme-domain",
		"plants.example.,Other.Example,bücher.example", "--acme-cache", cache, "--acme-email", "a@plants.example",
		"--acme-directory", a.directory)
	cmd.Env = a.env
	s := testkit.Launch(t, cmd)
	s.WaitServing()
	return s
}

// handshake connects to a name of the service.
func handshake(t *testing.T, listen, name string) (*tls.Conn, error) {
	t.Helper()
	c, err := net.Dial("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testkit.Deadline))
	secure := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	return secure, secure.Handshake()
}

// waitCertificate waits until the service has a certificate for a name, and returns a connection with it.
func waitCertificate(t *testing.T, listen, name string) (c *tls.Conn) {
	t.Helper()
	testkit.WaitFor(t, "a certificate for "+name, func() (ok bool) {
		var err error
		c, err = handshake(t, listen, name)
		time.Sleep(50 * time.Millisecond) // failures are logged
		return err == nil
	})
	leaf := c.ConnectionState().PeerCertificates[0]
	if name != "" && leaf.VerifyHostname(name) != nil || !strings.Contains(leaf.Issuer.CommonName, "Pebble") {
		t.Errorf("%s has the certificate of %v from %v", name, leaf.DNSNames, leaf.Issuer)
	}
	return c
}

func wantExchange(t *testing.T, c net.Conn, request string) {
	t.Helper()
	c.SetDeadline(time.Now().Add(testkit.Deadline))
	io.WriteString(c, request)
	wantOK(t, c)
}

// The service obtains a certificate for each domain, keeps them in its cache, and serves while the ACME server is
// unreachable: on existing connections, on new ones, and after a restart.
func TestACME(t *testing.T) {
	testkit.Long(t)
	listen, cache := testkit.FreeAddress(t), filepath.Join(t.TempDir(), "cache")
	acme := startACME(t, listen)
	s := acme.start(t, listen, cache)
	_, port, _ := net.SplitHostPort(listen)
	if s.URL != "https://plants.example:"+port {
		t.Errorf("serves %s", s.URL)
	}
	c := waitCertificate(t, listen, "plants.example")
	wantExchange(t, c, s.RawCreate(1))
	waitCertificate(t, listen, "other.example")
	waitCertificate(t, listen, "xn--bcher-kva.example")
	waitCertificate(t, listen, "") // without a name: the first
	if _, err := handshake(t, listen, "unknown.example"); err == nil {
		t.Error("an unknown name has a certificate")
	}
	if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the cache: %v, %v", info.Mode(), err)
	}
	files, _ := os.ReadDir(cache)
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
	first := waitCertificate(t, listen, "plants.example").ConnectionState().PeerCertificates[0]

	acme.Kill()
	wantExchange(t, c, s.RawCreate(2))
	wantExchange(t, waitCertificate(t, listen, "plants.example"), s.RawCreate(3))
	s.Kill()
	s = acme.start(t, listen, cache)
	c = waitCertificate(t, listen, "plants.example")
	wantExchange(t, c, s.RawCreate(4))
	if again := c.ConnectionState().PeerCertificates[0]; !again.Equal(first) {
		t.Error("a restart does not use the cache")
	}
	s.Kill()

	// Without a cache there is no certificate. The service runs, a handshake fails at once, and the log says why.
	s = acme.start(t, listen, t.TempDir())
	s.WaitLogged(t, `"msg":"no certificate was obtained"`)
	start := time.Now()
	if _, err := handshake(t, listen, "plants.example"); err == nil || time.Since(start) > testkit.Deadline/2 {
		t.Errorf("without a certificate: %v after %v", err, time.Since(start))
	}
	s.WaitReady(t, true)
}
