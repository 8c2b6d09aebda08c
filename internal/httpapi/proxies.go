package httpapi

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks that are trusted to report the address of a client. The zero value is none.
type Proxies []netip.Prefix

// ParseProxies parses --trusted-proxies: addresses and networks, separated by commas.
func ParseProxies(text string) (Proxies, error) {
	var all Proxies
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		network, err := netip.ParsePrefix(part)
		if address, e := netip.ParseAddr(part); e == nil && address.Zone() == "" {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil || network.Addr().Is4In6() {
			return nil, fmt.Errorf("--trusted-proxies has %q: use addresses and networks such as 10.0.0.0/8", part)
		}
		all = append(all, network)
	}
	return all, nil
}

// Trusts reports whether address is in one of the networks.
func (p Proxies) Trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(address) })
}

// client returns the address of the client, and whether a proxy reported it. Each proxy appends the address of its
// peer to X-Forwarded-For: the last address that is no trusted proxy is the client, and the client itself sent the ones
// before. The search ends at a value that is not an address.
func (p Proxies) client(r *http.Request) (address netip.Addr, forwarded bool) {
	address = parseHop(r.RemoteAddr)
	rest := strings.Join(r.Header["X-Forwarded-For"], ",")
	for rest != "" && p.Trusts(address) {
		at := strings.LastIndexByte(rest, ',')
		next := parseHop(strings.TrimSpace(rest[at+1:]))
		if !next.IsValid() {
			break
		}
		address, forwarded, rest = next, true, rest[:max(at, 0)]
	}
	return address, forwarded
}

// parseHop parses an address with or without a port. The result is the zero Addr if the text is neither.
func parseHop(text string) netip.Addr {
	address, err := netip.ParseAddr(text)
	if err != nil {
		both, _ := netip.ParseAddrPort(text)
		address = both.Addr()
	}
	return address.Unmap().WithZone("")
}

// name returns the source of a request for the log.
func (p Proxies) name(r *http.Request) string {
	if address, forwarded := p.client(r); forwarded {
		return address.String()
	}
	return r.RemoteAddr
}

// Address implements token.Source.
func (x *exchange) Address() netip.Addr {
	address, _ := x.api.cfg.Proxies.client(x.request)
	return address
}
