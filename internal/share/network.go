package share

import "net/netip"

// Network returns the owner of an address without a token: an IPv4 address as it is, and the /64 network of an IPv6
// address, because a client usually has such a network to itself.
func Network(address netip.Addr) netip.Addr {
	address = address.Unmap()
	if address.Is6() {
		network, _ := address.Prefix(64)
		address = network.Addr()
	}
	return address
}
