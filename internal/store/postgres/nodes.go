package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/store"
)

// node is the state of one node of a Citus cluster.
type node struct {
	host        string
	port        int
	coordinator bool
	hasShards   bool     // whether Citus places shards on it
	reason      string   // why it does not respond; empty if it does
	settings    settings // if it responds
}

func (n *node) address() string { return net.JoinHostPort(n.host, strconv.Itoa(n.port)) }

func (n *node) name() string {
	if n.coordinator {
		return "coordinator " + n.address()
	}
	return "worker " + n.address()
}

const (
	hasCitus = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"

	selectNodes = `
		SELECT nodename, nodeport, groupid = 0, shouldhaveshards FROM pg_dist_node
		WHERE isactive AND noderole = 'primary' AND nodecluster = current_setting('citus.cluster_name')
		ORDER BY groupid, nodename, nodeport`

	setNodeTimeouts = `
		SELECT set_config('citus.node_connection_timeout', $1, true), set_config('statement_timeout', $2, true)`

	// Every user may call this function, on every node. It opens a new connection to each node, as the user.
	runOnNodes = "SELECT success, result FROM master_run_on_worker($1::text[], $2::int[], $3::text[], true)"

	nodeSettings = `SELECT concat_ws(' ', current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_commit'), current_setting('server_encoding'))`

	// If it can't connect, its warning has the reason, which the result of runOnNodes does not have.
	connectToNode = "SELECT citus_check_connection_to_node($1, $2)"
)

// nodeConn is a separate connection for queries to the nodes, so that a node that hangs blocks no connection of a
// request.
type nodeConn struct {
	config   *pgx.ConnConfig
	conn     *pgx.Conn // nil, or open
	warnings []string  // that the server has sent since the last query
	timeouts timeouts
	patience time.Duration // factor of the timeouts
}

func newNodeConn(config *pgx.ConnConfig, t timeouts) *nodeConn {
	c := &nodeConn{config: config.Copy(), timeouts: t, patience: 1}
	takeSettings(c.config) // none is needed, and a pooler refuses them
	c.config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			c.warnings = append(c.warnings, n.Message)
		}
	}
	return c
}

func (c *nodeConn) close() {
	if c.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.conn.Close(ctx)
		c.conn = nil
	}
}

// nodes reads the settings of every node of the cluster. The result is nil if the database does not use Citus.
// It returns within timeouts.nodeCheck × patience, also if nodes hang.
func (c *nodeConn) nodes(ctx context.Context) (nodes []node, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.nodeCheck*c.patience)
	defer cancel()
	for range 2 {
		reused := c.conn != nil
		if !reused {
			c.conn, err = pgx.ConnectConfig(ctx, c.config)
		}
		if err == nil {
			nodes, err = c.readNodes(ctx)
		}
		if err == nil {
			return nodes, nil
		}
		c.close()
		if !reused || !isLost(err) { // the server may have been restarted since the last query
			break
		}
	}
	return nil, translate(err)
}

func (c *nodeConn) readNodes(ctx context.Context) (nodes []node, err error) {
	var cluster bool
	if err := c.conn.QueryRow(ctx, hasCitus, pgx.QueryExecModeExec).Scan(&cluster); err != nil || !cluster {
		return nil, err
	}
	rows, err := c.conn.Query(ctx, selectNodes, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	nodes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (n node, err error) {
		return n, row.Scan(&n.host, &n.port, &n.coordinator, &n.hasShards)
	})
	if err != nil {
		return nil, err
	}
	err = c.readSettings(ctx, nodes)
	if isCanceled(err) { // a node accepts connections and then hangs: query one after the other to find it
		for i := range nodes {
			if err = c.readSettings(ctx, nodes[i:i+1]); isCanceled(err) {
				nodes[i].reason, err = fmt.Sprintf("no response within %v", c.timeouts.nodeQuery*c.patience), nil
			}
			if err != nil {
				break
			}
		}
	}
	return nodes, err
}

// readSettings sets the settings of the nodes, or why they do not respond.
func (c *nodeConn) readSettings(ctx context.Context, nodes []node) error {
	results, err := c.run(ctx, nodes, nodeSettings)
	for i := range results {
		n := &nodes[i]
		if fields := strings.Fields(results[i].text); results[i].ok && len(fields) == 4 {
			n.settings = settings{fields[0], fields[1], fields[2], fields[3]}
			continue
		}
		n.reason = results[i].text
		if err == nil {
			err = c.findReason(ctx, n)
		}
	}
	return err
}

// nodeResult is the value that a query returned on a node, or an error.
type nodeResult struct {
	ok   bool
	text string
}

// run runs a query that returns one value on all nodes at once.
func (c *nodeConn) run(ctx context.Context, nodes []node, query string) (results []nodeResult, err error) {
	hosts, ports, queries := make([]string, len(nodes)), make([]int, len(nodes)), make([]string, len(nodes))
	for i, n := range nodes {
		hosts[i], ports[i], queries[i] = n.host, n.port, query
	}
	err = c.transaction(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, runOnNodes, pgx.QueryExecModeExec, hosts, ports, queries)
		if err != nil {
			return err
		}
		results, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r nodeResult, err error) {
			return r, row.Scan(&r.ok, &r.text)
		})
		return err
	})
	return results, err
}

// findReason sets the reason of a node that does not respond by connecting to it.
func (c *nodeConn) findReason(ctx context.Context, n *node) error {
	c.warnings = nil
	err := c.transaction(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, connectToNode, pgx.QueryExecModeExec, n.host, n.port)
		return err
	})
	if len(c.warnings) > 0 {
		n.reason = shortReason(c.warnings[0])
	}
	return err
}

// shortReason returns the first line of a warning of Citus, without the text before the error of libpq.
func shortReason(warning string) string {
	if _, reason, ok := strings.Cut(warning, "with the following error: "); ok {
		warning = reason
	}
	line, _, _ := strings.Cut(warning, "\n")
	runes := []rune(strings.TrimSpace(line))
	if len(runes) > 1 && unicode.IsLower(runes[1]) {
		runes[0] = unicode.ToLower(runes[0])
	}
	return string(runes)
}

// transaction runs do in a transaction with timeouts for connections to other nodes and for queries.
func (c *nodeConn) transaction(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error {
		connect, query := milliseconds(c.timeouts.nodeConnect*c.patience), milliseconds(c.timeouts.nodeQuery*c.patience)
		if _, err := tx.Exec(ctx, setNodeTimeouts, pgx.QueryExecModeExec, connect, query); err != nil {
			return err
		}
		return do(tx)
	})
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func isCanceled(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == queryCanceled
}

// nodesError describes the nodes that do not respond or whose settings are refused, or is nil. It is an
// unsafeServerError if a node can lose what it confirms.
func nodesError(nodes []node, opts Options) error {
	var problems []string
	unsafe := false
	for _, n := range nodes {
		if n.reason != "" {
			problems = append(problems, fmt.Sprintf("%s does not respond: %s", n.name(), n.reason))
		} else if text, _ := n.settings.problem(n.name(), opts); text != "" {
			problems = append(problems, text)
			unsafe = true
		}
	}
	if len(problems) == 0 {
		return nil
	}
	err := fmt.Errorf("%w: %s", store.ErrUnavailable, strings.Join(problems, "; "))
	if unsafe {
		return unsafeServerError{err}
	}
	return err
}

// nodeMonitor checks the nodes of a cluster in the background, and reads its layout. A nil monitor is that of a
// database on one server.
type nodeMonitor struct {
	conn    *nodeConn
	opts    Options
	layout  func(context.Context, *pgx.Conn) error
	current atomic.Pointer[error] // of nodesError
	counts  atomic.Pointer[map[string]int64]
	stop    context.CancelFunc
	stopped chan struct{}
}

// monitorNodes refuses a cluster with a node that can lose what it confirms, and otherwise starts to check its
// nodes. A node that does not respond is not refused: the plants on the others can be served.
func (s *Store) monitorNodes(ctx context.Context, config *pgx.ConnConfig) (*nodeMonitor, error) {
	m := &nodeMonitor{
		conn: newNodeConn(config, s.timeouts), opts: s.opts, layout: s.refreshLayout, stopped: make(chan struct{}),
	}
	nodes, err := m.conn.nodes(ctx)
	if err == nil {
		m.count(nodes, nil)
		current := nodesError(nodes, s.opts)
		m.current.Store(&current)
		err = m.unsafe()
	}
	if err == nil && !s.opts.readOnly {
		err = s.opts.refuse(m.conn.shardProblems(ctx, nodes))
	}
	if err != nil {
		m.conn.close()
		return nil, err
	}
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	go m.run(ctx)
	return m, nil
}

func (m *nodeMonitor) run(ctx context.Context) {
	defer close(m.stopped)
	defer m.conn.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(m.conn.timeouts.nodePeriod):
		}
		nodes, err := m.conn.nodes(ctx)
		m.count(nodes, err)
		if err == nil {
			_ = m.layout(ctx, m.conn.conn) // after a failure it stays as it was, which is safe: see layout
			err = nodesError(nodes, m.opts)
		} else if m.unsafe() != nil {
			continue // the node is probably still unsafe
		}
		m.current.Store(&err)
	}
}

// err returns the error of the last check.
func (m *nodeMonitor) err() error {
	if m == nil {
		return nil
	}
	return *m.current.Load()
}

// unsafe returns the error of the last check if a node can lose what it confirms.
func (m *nodeMonitor) unsafe() error {
	if _, ok := errors.AsType[unsafeServerError](m.err()); ok {
		return m.err()
	}
	return nil
}

func (m *nodeMonitor) close() {
	if m != nil {
		m.stop()
		<-m.stopped
	}
}
