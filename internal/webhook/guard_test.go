package webhook

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The test vector of Standard Webhooks, also between other signatures.
func TestSign(t *testing.T) {
	const secret, id, body = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`
	const signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	at := time.Unix(1614265330, 0)
	for _, prefix := range []string{"", "whsec_"} {
		if got := Sign([]string{prefix + secret}, id, at, []byte(body)); got != signature {
			t.Errorf("Sign() = %s, want %s", got, signature)
		}
	}
	for what, ok := range map[string]bool{
		"": true, "now=300s": true, "now=-300s": true, "signature=v1a,x v1,AAAA " + signature: true,
		"now=301s": false, "now=-301s": false, "timestamp=1614265331": false, "timestamp=x": false, "id=" + id + "x": false,
		"body=" + body + " ": false, "signature=": false, "signature=v2" + signature[2:]: false, "secret=!": false,
		"secret=" + NewSecret(): false,
	} {
		name, value, _ := strings.Cut(what, "=")
		with := map[string]string{"secret": secret, "id": id, "timestamp": "1614265330", "signature": signature, "body": body}
		with[name] = value
		h := http.Header{"Webhook-Id": {with["id"]}, "Webhook-Timestamp": {with["timestamp"]},
			"Webhook-Signature": {with["signature"]}}
		skew, _ := time.ParseDuration(with["now"])
		if err := Verify(with["secret"], h, []byte(with["body"]), at.Add(skew)); (err == nil) != ok {
			t.Errorf("Verify() with %q = %v", what, err)
		}
	}
}

// Ids sort by time, and contain it.
func TestEventIDs(t *testing.T) {
	for _, at := range []time.Time{time.UnixMilli(0), time.UnixMilli(1), time.Now(), time.UnixMilli(1<<48 - 2)} {
		id, next := newEvent(at), firstEvent(at.Add(time.Millisecond))
		if got := timeOf(id); id == newEvent(at) || id < firstEvent(at) || id >= next || len(id) != 30 ||
			!got.Equal(at.Truncate(time.Millisecond)) {
			t.Errorf("%v: %s of %v, then %s", at, id, got, next)
		}
	}
	for _, bad := range []string{"", "msg_", "msg_x", newEvent(time.Now())[4:], newEvent(time.Now()) + "\n", "~"} {
		if at := timeOf(bad); !at.IsZero() {
			t.Errorf("timeOf(%q) = %v", bad, at)
		}
	}
}

// Each setting allows its addresses. An IPv6 address that contains an IPv4 address is treated as that one.
func TestTargets(t *testing.T) {
	const public, private, networks = 1, 2, 4
	for allowed, addresses := range map[int]string{
		public | private: "8.8.8.8 1.1.1.1 93.184.216.34 172.32.0.1 172.15.0.1 100.128.0.1 192.167.0.1 198.20.0.1 " +
			"2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1",
		private: "127.0.0.1 127.9.9.9 ::1 192.168.1.1 172.16.0.1 172.31.255.255 fc00::1 fdff::1 ::ffff:127.0.0.1 " +
			"64:ff9b::7f00:1 2002:c0a8:101::1 2002:7f00:1:: ::ffff:192.168.0.1 10.2.0.1",
		private | networks: "10.1.0.1 10.1.255.255 ::ffff:10.1.2.3 64:ff9b::a01:1 2002:a01:203:: fd12::1",
		networks:           "169.254.7.1 203.0.113.9 2001:db8::1",
		0: "0.0.0.0 0.1.2.3 169.254.169.254 169.254.1.1 100.64.0.1 100.127.255.255 198.18.0.1 198.19.255.255 224.0.0.1 " +
			"239.1.1.1 240.0.0.1 255.255.255.255 192.0.0.8 192.0.2.1 198.51.100.1 203.0.113.1 192.88.99.1 100.100.100.200 " +
			"168.63.129.16 192.0.0.192 :: fe80::1 fe80::1%eth0 febf::1 fec0::1 ff02::1 fd00:ec2::254 fd20:ce::254 " +
			"::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe:: ::ffff:100.64.0.1 ::ffff:0.0.0.0 ::127.0.0.1 " +
			"::ffff:0:7f00:1 64:ff9b:1::7f00:1 100::1 2001::1 2001:2::1 2001:10::1 2001:db8:1::1 3fff::1 5f00::1 4000::1 " +
			"64:ff9b::c612:1 2002:6440:1:: 2002:e000:1::",
	} {
		for mode, text := range map[int]string{public: "public", private: "private",
			networks: "10.1.2.3/16, fd12::/16,169.254.7.0/24,203.0.113.9/32,2001:db8::/48"} {
			targets, err := ParseTargets(text)
			if err != nil {
				t.Fatal(err)
			}
			for word := range strings.FieldsSeq(addresses) {
				if got := targets.Allow(netip.MustParseAddr(word)); got != (allowed&mode != 0) {
					t.Errorf("--webhook-targets %s: Allow(%s) = %v", text, word, got)
				}
			}
		}
	}
	for _, bad := range []string{"", "none", "public,", "10.0.0.1", "10.0.0.0/33", "public private"} {
		if _, err := ParseTargets(bad); err == nil || !strings.HasPrefix(err.Error(), "--webhook-targets ") {
			t.Errorf("ParseTargets(%q) = %v", bad, err)
		}
	}
	for text, ok := range map[string]bool{"": true, "http://p:3128": true, "p:3128": false, "ftp://p": false} {
		_, err := ParseProxy(text)
		if (err == nil) != ok || !ok && !strings.HasPrefix(err.Error(), "--webhook-proxy ") {
			t.Errorf("ParseProxy(%q) = %v", text, err)
		}
	}
}

// names resolves names for the process, each to an IPv4 address. Other names do not exist.
func names(t *testing.T, all map[string]string) {
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	answer := func(conn net.Conn) {
		defer conn.Close()
		var length uint16
		for binary.Read(conn, binary.BigEndian, &length) == nil {
			q := make([]byte, length)
			io.ReadFull(conn, q)
			name, end := "", 12
			for ; q[end] != 0; end += int(q[end]) + 1 {
				name += string(q[end+1:end+1+int(q[end])]) + "."
			}
			r := slices.Concat(q[:2], []byte{0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end+5]) // no such name
			if a, ok := all[name]; ok {
				r[3] = 0x80
				if q[end+2] == 1 { // A
					r[7] = 1
					r = slices.Concat(r, []byte{0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4}, netip.MustParseAddr(a).AsSlice())
				}
			}
			conn.Write(slices.Concat(binary.BigEndian.AppendUint16(nil, uint16(len(r))), r))
		}
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go answer(theirs)
		return ours, nil
	}}
}

// An address is checked when it is dialled, however it is written, and whatever its name had before.
func TestGuard(t *testing.T) {
	reached := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	all := map[string]string{"rebinds.example.": "93.184.216.34", "local.example.": "127.0.0.1"}
	names(t, all)
	public, _ := ParseTargets("public")
	s := start(t, open(t), Config{Targets: public}, nil)
	for _, host := range []string{"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0",
		"[::]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]", "local.example.", "169.254.169.254", "localhost"} {
		want[none](s, 40042, "POST", "/webhooks", fmt.Sprintf(`{"url":"https://%s:%s/"}`, host, port))
		if try, err := s.send1("http://" + host + ":" + port); err != nil || try.Error != "target" {
			t.Errorf("%s: %+v, %v", host, try, err)
		}
	}
	for _, host := range []string{"2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.1."} {
		want[none](s, 40039, "POST", "/webhooks", fmt.Sprintf(`{"url":"https://%s:%s/"}`, host, port))
		s.send1("http://" + host + ":" + port)
	}
	want[shown](s, 201, "POST", "/webhooks", `{"url":"http://rebinds.example.:`+port+`/"}`)
	all["rebinds.example."] = "127.0.0.1"
	try, err := s.send1("http://rebinds.example.:" + port + "/")
	if err != nil || try.Error != "target" || reached != 0 {
		t.Errorf("a name that changes: %+v, %v; %d requests", try, err, reached)
	}
	s.add("", `"url":"https://unknown.example."`)
	got := s.send("POST", "/webhooks", `{"url":"http://[::1]"}`).Body.String()
	if !strings.Contains(got, "--webhook-targets") {
		t.Errorf("the message does not name the flag: %s", got)
	}
	for _, bad := range []string{"", "x", "/x", "//a.example", "ftp://a.example", "http://", "http:a.example",
		"http://:80", "https://u@a.example", "https://u:p@a.example", "https://a.example/#", "https://a.example/#x",
		"https://a b", "https://a.example:99999/", "https://a.example/" + strings.Repeat("x", 2048)} {
		want[none](s, 40039, "POST", "/webhooks", fmt.Sprintf(`{"url":%q}`, bad))
	}
}

// send1 makes one request to a URL.
func (s *service) send1(url string) (try, error) {
	e := endpoint{settings: settings{public: public{URL: url}, Secret: NewSecret()}}
	return s.Webhooks.send(context.Background(), e, newEvent(time.Now()), []byte("{}"))
}

// Every failure has its class. A redirect is not followed.
func TestClasses(t *testing.T) {
	names(t, nil)
	reached := 0
	server := func(config func(*httptest.Server), h http.HandlerFunc) string {
		server := httptest.NewUnstartedServer(h)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		config(server)
		t.Cleanup(server.Close)
		return server.URL
	}
	ok := func(http.ResponseWriter, *http.Request) { reached++ }
	plain := server((*httptest.Server).Start, ok)
	closed := httptest.NewServer(nil)
	closed.Close()
	old := func(s *httptest.Server) {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
		s.StartTLS()
	}
	private, _ := ParseTargets("private")
	s := start(t, open(t), Config{Targets: private}, nil)
	for _, test := range []struct {
		class, url string
		status     int
	}{
		{"", plain, 200}, {"dns", "http://nothing.invalid/", 0}, {"refused", closed.URL, 0},
		{"status", server((*httptest.Server).Start, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, plain, http.StatusTemporaryRedirect)
		}), 307},
		{"tls", server((*httptest.Server).StartTLS, ok), 0}, {"tls", server(old, ok), 0},
		{"tls", strings.Replace(plain, "http", "https", 1), 0},
		{"connection", server((*httptest.Server).Start, func(w http.ResponseWriter, r *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}), 0},
	} {
		reached = 0
		try, err := s.send1(test.url)
		if err != nil || try.Error != test.class || try.Status != test.status || reached > 0 != (test.class == "") {
			t.Errorf("%s: %+v, %v, want class %q", test.url, try, err, test.class)
		}
	}
}

// A try ends after 15 s, whether the receiver sends nothing, a part of the headers or a part of the body.
func TestTimeout(t *testing.T) {
	for _, response := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"} {
		inBubble(t, nil, func(t *testing.T, s *service) {
			s.client.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					theirs.Read(make([]byte, 1))
					go io.Copy(io.Discard, theirs)
					io.WriteString(theirs, response)
				}()
				return ours, nil
			}}
			started := time.Now()
			try, err := s.send1("http://a.example")
			if err != nil || try.Error != map[int]string{0: "timeout"}[try.Status] || time.Since(started) != 15*time.Second {
				t.Errorf("after %q: %+v, %v after %v", response, try, err, time.Since(started))
			}
		})
	}
}

// A handshake without a response ends after tryTimeout: its request has ended before. No goroutine is left.
func TestHangingHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(Targets{}, nil)
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
			conn, receiver := net.Pipe()
			go io.Copy(io.Discard, receiver)
			return conn, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "POST", "https://a.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.RoundTrip(r); err == nil {
			t.Error("a response without a handshake")
		}
		time.Sleep(tryTimeout)
	})
}

// With a proxy, every request goes through it, and the proxy decides what it may reach. Without the flag, there is no
// proxy, whatever the environment says.
func TestProxy(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.RequestURI)
		w.WriteHeader(http.StatusForbidden) // also to CONNECT
	}))
	defer server.Close()
	proxy, err := ParseProxy(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, open(t), Config{Proxy: proxy}, nil)
	s.client.Transport = newTransport(Targets{}, proxy)
	s.add("", `"url":"http://127.0.0.1/"`) // no address is checked
	for _, url := range []string{"http://shop.example/hook", "https://shop.example/hook"} {
		if try, err := s.send1(url); err != nil || try.Error == "" {
			t.Errorf("%s: %+v, %v", url, try, err)
		}
	}
	if want := []string{"POST http://shop.example/hook", "CONNECT shop.example:443"}; !slices.Equal(got, want) {
		t.Errorf("the proxy got %q, want %q", got, want)
	}
	if newTransport(Targets{}, nil).Proxy != nil {
		t.Error("without --webhook-proxy, there is a proxy")
	}
}
