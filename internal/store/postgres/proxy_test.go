package postgres

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit/proxy"
)

// databaseBehindProxy creates a database on the shared server and returns its URL through a proxy.
func databaseBehindProxy(t *testing.T) (address string, p *proxy.Proxy) {
	t.Helper()
	server := pgtest.Shared(t)
	p = proxy.New(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(server.Port)))
	return server.Through(p.Address, pgtest.Name(server.Database(t))), p
}

// openBehindProxy opens a database through a proxy, with one connection that has been used. Idle connections
// are not pinged, so that the next request of a connection is that of the test. The URL ends with params.
func openBehindProxy(t *testing.T, params ...string) (*Store, *proxy.Proxy) {
	t.Helper()
	address, p := databaseBehindProxy(t)
	s := openConfig(t, address+strings.Join(params, ""), func(config *pgxpool.Config) {
		config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	create(t, s, record(0))
	return s, p
}

// loseRequest closes the connection at the next request, which does not reach the server.
func loseRequest() proxy.Fault { return proxy.Once(proxy.Requests, proxy.Close(proxy.Requests)) }

// loseReply closes the connection at the next reply.
func loseReply() proxy.Fault { return proxy.Once(proxy.Replies, proxy.Close(proxy.Replies)) }

const readyForQueryLen = 6 // bytes of ReadyForQuery, the last message of a reply, which follows the commit

// loseServer cuts the last bytes off the next reply, or all of it, closes the connection and refuses new ones.
func loseServer(p *proxy.Proxy, all bool) proxy.Fault {
	return proxy.Once(proxy.Replies, func(c *proxy.Chunk) ([]byte, bool) {
		p.Refuse(-1)
		if all {
			return nil, false
		}
		return c.Data[:len(c.Data)-readyForQueryLen], false
	})
}

// hang makes the network pass nothing, without closing a connection. The connections that are open now
// stay unusable afterwards.
func hang(p *proxy.Proxy) {
	p.Freeze()
	p.Set(func(*proxy.Chunk) ([]byte, bool) { return nil, true })
}
