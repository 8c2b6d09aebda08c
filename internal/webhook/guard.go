package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Targets are the addresses that push endpoints may have. The zero value allows none.
type Targets struct {
	public, private bool
	networks        []netip.Prefix
}

// ParseTargets parses public, private or networks, separated by commas.
func ParseTargets(text string) (t Targets, err error) {
	for word := range strings.SplitSeq(text, ",") {
		switch word = strings.TrimSpace(word); word {
		case "public":
			t.public = true
		case "private":
			t.public, t.private = true, true
		default:
			p, err := netip.ParsePrefix(word)
			if err != nil {
				return t, fmt.Errorf("--webhook-targets is %q: use public, private or networks such as 10.1.0.0/16", text)
			}
			t.networks = append(t.networks, p.Masked())
		}
	}
	return t, nil
}

// ParseProxy parses the URL of a proxy, or returns nil for none.
func ParseProxy(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return nil, errors.New("--webhook-proxy must be a URL such as http://proxy.example:3128")
	}
	return u, nil
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

var (
	// metadata are services of clouds for their own machines. "private" does not allow them, though some are in private.
	metadata = prefixes("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128", "100.100.100.200/32",
		"168.63.129.16/32", "192.0.0.192/32")
	private = prefixes("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
	// special are the other networks that are not public: RFC 6890 and later. In IPv6, only 2000::/3 is public.
	special = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
		"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "3fff::/20", "::/3", "4000::/2", "8000::/1")
)

// embedded returns the IPv4 address that an IPv6 address contains, or the address itself.
func embedded(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	b := a.As16()
	switch {
	case a.Is4():
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a): // NAT64
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(a): // 6to4
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

// Allow reports whether a push endpoint may have an address.
func (t Targets) Allow(a netip.Addr) bool {
	a = embedded(a)
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case slices.ContainsFunc(t.networks, in):
		return true
	case slices.ContainsFunc(metadata, in):
		return false
	case slices.ContainsFunc(private, in):
		return t.private
	}
	return t.public && !slices.ContainsFunc(special, in)
}

// numeric matches a host that is a number, or an IPv4 address in an old form, such as 127.1 and 0x7f000001.
var numeric = regexp.MustCompile(`(?i)(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$`)

var errTarget = errors.New("the address is not allowed by --webhook-targets")

// control refuses an address when net.Dialer dials it: a name may resolve to another address than when it was added.
func (t Targets) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	if a, err := netip.ParseAddrPort(address); err != nil || !t.Allow(a.Addr()) {
		return errTarget
	}
	return nil
}

const lookupTimeout = 3 * time.Second

// allowHost reports whether an address of a host is allowed. A name without an address is accepted.
func (t Targets) allowHost(ctx context.Context, host string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	return err != nil || slices.ContainsFunc(addresses, t.Allow)
}

// newTransport returns the transport of all requests. Without a proxy, it dials only targets.
func newTransport(t Targets, proxy *url.URL) *http.Transport {
	tr := &http.Transport{
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		DisableCompression:     true,
		MaxIdleConns:           maxInFlight,
		MaxIdleConnsPerHost:    maxInFlightOf,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 16 << 10,
		TLSHandshakeTimeout:    tryTimeout, // the end of a request does not end its handshake
	}
	dialer := net.Dialer{Timeout: tryTimeout}
	if proxy != nil {
		tr.Proxy = http.ProxyURL(proxy)
	} else {
		dialer.ControlContext = t.control
	}
	tr.DialContext = dialer.DialContext
	return tr
}
