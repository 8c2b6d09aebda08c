package httpapi

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"plantstore/internal/token"
)

func TestParseProxies(t *testing.T) {
	for text, n := range map[string]int{
		"": 0, "10.0.0.0/8": 1, "10.0.0.0/8, ::1,192.0.2.7": 3, "fe80::/10": 1, "0.0.0.0/0,::/0": 2,
	} {
		if p, err := ParseProxies(text); err != nil || len(p) != n {
			t.Errorf("ParseProxies(%q) = %v, %v, want %d networks", text, p, err, n)
		}
	}
	for _, text := range []string{
		"proxy.example", "10.0.0.0/33", "10.0.0/8", "fe80::1%eth0", "10.0.0.1:80", "*", "::ffff:10.0.0.0/104",
		"10.0.0.1-10.0.0.9",
	} {
		if p, err := ParseProxies(text); err == nil {
			t.Errorf("ParseProxies(%q) = %v", text, p)
		}
	}
}

func TestClient(t *testing.T) {
	proxies, err := ParseProxies("10.0.0.0/8,::1")
	if err != nil {
		t.Fatal(err)
	}
	const outside, inside = "203.0.113.9:4711", "10.1.1.1:4711"
	for _, test := range []struct {
		what, peer string
		forwarded  []string
		want       string
	}{
		{"a client", outside, nil, "203.0.113.9"},
		{"a client that claims to be another", outside, []string{"192.0.2.1"}, "203.0.113.9"},
		{"a proxy without the header", inside, nil, "10.1.1.1"},
		{"a proxy's client", inside, []string{"192.0.2.1"}, "192.0.2.1"},
		{"a proxy of IPv6", "[::1]:4711", []string{"192.0.2.1"}, "192.0.2.1"},
		{"a proxy, seen by a socket of IPv6", "[::ffff:10.1.1.1]:4711", []string{"192.0.2.1"}, "192.0.2.1"},
		{"a client of a proxy that claims to be another", inside, []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1"},
		{"the same in two headers", inside, []string{"198.51.100.7", "192.0.2.1"}, "192.0.2.1"},
		{"a client that claims to be a proxy", inside, []string{"10.9.9.9, 192.0.2.1"}, "192.0.2.1"},
		{"two proxies", inside, []string{"198.51.100.7,192.0.2.1 , 10.2.2.2"}, "192.0.2.1"},
		{"proxies all the way", inside, []string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		{"with a port", inside, []string{"192.0.2.1:99, 10.2.2.2:80"}, "192.0.2.1"},
		{"IPv6", inside, []string{"2001:db8::1"}, "2001:db8::1"},
		{"IPv6 with a port", inside, []string{"[2001:db8::1]:99"}, "2001:db8::1"},
		{"IPv4 written as IPv6", inside, []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"not an address", inside, []string{"192.0.2.1, unknown"}, "10.1.1.1"},
		{"not an address, behind a proxy", inside, []string{"192.0.2.1, <script>, 10.2.2.2"}, "10.2.2.2"},
		{"an empty last value", inside, []string{"192.0.2.1,"}, "10.1.1.1"},
		{"a zone", "[fe80::1%eth0]:4711", nil, "fe80::1"},
		{"a zone behind a proxy", inside, []string{"fe80::9%eth0"}, "fe80::9"},
		{"an empty header", inside, []string{""}, "10.1.1.1"},
		{"a long header", inside, []string{strings.Repeat("192.0.2.1,", 3000) + "192.0.2.2"}, "192.0.2.2"},
	} {
		r := &http.Request{RemoteAddr: test.peer, Header: http.Header{"X-Forwarded-For": test.forwarded}}
		if got, _ := proxies.client(r); got.String() != test.want {
			t.Errorf("%s: %v, want %s", test.what, got, test.want)
		}
		logged := test.want
		if strings.Contains(test.peer, test.want) {
			logged = test.peer // with its port
		}
		if name := proxies.name(r); name != logged {
			t.Errorf("%s: logged as %s, want %s", test.what, name, logged)
		}
		if got, _ := Proxies(nil).client(r); strings.Contains(got.String(), "192.0.2") {
			t.Errorf("%s: used although no proxy is trusted", test.what)
		}
	}
}

// sourced is an Authenticator that records the address of the client.
type sourced struct{ from netip.Addr }

func (s *sourced) Authenticate(_ context.Context, _ []string, from token.Source) (*token.Token, error) {
	s.from = from.Address()
	return nil, token.ErrMissing
}

// Failed credentials count for the client, not for the proxy.
func TestAddress(t *testing.T) {
	for trusted, want := range map[string]string{"": "192.0.2.1", "192.0.2.1": "203.0.113.9"} {
		proxies, err := ParseProxies(trusted)
		if err != nil {
			t.Fatal(err)
		}
		auth := new(sourced)
		a, _ := newAPI(Config{Proxies: proxies}, Dependencies{Auth: auth})
		send(a, "GET", "/plants", nil, "X-Forwarded-For", "203.0.113.9")
		if auth.from.String() != want {
			t.Errorf("address %v with trusted proxies %q, want %s", auth.from, trusted, want)
		}
	}
}
