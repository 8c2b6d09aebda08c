package httpapi

import (
	"net/http"
	"strings"
	"testing"
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
		{"an empty header", inside, []string{""}, "10.1.1.1"},
		{"a long header", inside, []string{strings.Repeat("192.0.2.1,", 3000) + "192.0.2.2"}, "192.0.2.2"},
	} {
		r := &http.Request{RemoteAddr: test.peer, Header: http.Header{"X-Forwarded-For": test.forwarded}}
		got, forwarded := proxies.client(r)
		if got.String() != test.want {
			t.Errorf("%s: %v, want %s", test.what, got, test.want)
		}
		logged := test.peer
		if forwarded {
			logged = test.want
		}
		if name := proxies.name(r); name != logged {
			t.Errorf("%s: logged as %s, want %s", test.what, name, logged)
		}
		if got, _ := Proxies(nil).client(r); strings.Contains(got.String(), "192.0.2") {
			t.Errorf("%s: used although no proxy is trusted", test.what)
		}
	}
}
