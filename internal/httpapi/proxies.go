package httpapi

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks whose word about where a request comes from is taken. The zero value: nobody's.
type Proxies []netip.Prefix

// ParseProxies reads --trusted-proxies: addresses and networks, separated by commas.
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
			return nil, fmt.Errorf("the trusted proxy is %q: expected an address or a network such as 10.0.0.0/8", part)
		}
		all = append(all, network)
	}
	return all, nil
}

func (p Proxies) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(address) })
}

// client is where a request comes from, and whether that is the word of a proxy. Each proxy adds, at the end of
// X-Forwarded-For, whom it was asked by: the last one that is no proxy of ours is the client, and what stands
// before it is only what the client says. What is not an address ends the walk.
func (p Proxies) client(r *http.Request) (address netip.Addr, forwarded bool) {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	address = peer.Addr().Unmap().WithZone("")
	rest := strings.Join(r.Header["X-Forwarded-For"], ",")
	for rest != "" && p.trusts(address) {
		at := strings.LastIndexByte(rest, ',')
		next, ok := parseHop(strings.TrimSpace(rest[at+1:]))
		if !ok {
			break
		}
		address, forwarded, rest = next, true, rest[:max(at, 0)]
	}
	return address, forwarded
}

// parseHop reads an address, with or without a port.
func parseHop(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		var both netip.AddrPort
		both, err = netip.ParseAddrPort(text)
		address = both.Addr()
	}
	return address.Unmap().WithZone(""), err == nil
}

// name is how the log calls the source of a request.
func (p Proxies) name(r *http.Request) string {
	if len(p) > 0 {
		if address, forwarded := p.client(r); forwarded {
			return address.String()
		}
	}
	return r.RemoteAddr
}

// Address implements token.Source.
func (x *exchange) Address() netip.Addr {
	address, _ := x.api.cfg.Proxies.client(x.request)
	return address
}
