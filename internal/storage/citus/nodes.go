package citus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres"
)

type node struct {
	host        string
	port        int
	coordinator bool
	hasShards   bool                    // whether Citus places shards on it
	reason      string                  // why it does not respond; empty if it does
	settings    postgres.ServerSettings // if it responds
}

func (n *node) name() string {
	address := net.JoinHostPort(n.host, strconv.Itoa(n.port))
	if n.coordinator {
		return "coordinator " + address
	}
	return "worker " + address
}

const (
	selectNodes = `
		SELECT nodename, nodeport, groupid = 0, shouldhaveshards FROM pg_dist_node
		WHERE isactive AND noderole = 'primary' AND nodecluster = current_setting('citus.cluster_name')
		ORDER BY groupid, nodename, nodeport`

	setNodeTimeouts = `
		SELECT set_config('citus.node_connection_timeout', $1, true), set_config('statement_timeout', $2, true)`

	// Every user may call this function, on every node. It opens a new connection to the node, as the user.
	runOnNode = `
		SELECT success, result FROM master_run_on_worker(ARRAY[$1::text], ARRAY[$2::int], ARRAY[$3::text], true)`

	nodeSettings = `SELECT concat_ws(' ', current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_commit'), current_setting('server_encoding'))`
)

// listNodes returns the nodes of the cluster, without their settings.
func listNodes(ctx context.Context, conn *pgx.Conn) ([]node, error) {
	rows, err := conn.Query(ctx, selectNodes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (n node, err error) {
		return n, row.Scan(&n.host, &n.port, &n.coordinator, &n.hasShards)
	})
}

// readNodes reads the settings of every node of the cluster, one after the other, so that a node that hangs can be
// named.
func readNodes(ctx context.Context, conn *pgx.Conn) ([]node, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	nodes, err := listNodes(ctx, conn)
	for i := range nodes {
		var text string
		if err == nil {
			text, err = nodes[i].run(ctx, conn, nodeSettings)
		}
		if f := strings.Fields(text); len(f) == 4 {
			nodes[i].settings = postgres.ServerSettings{
				Fsync: f[0], FullPageWrites: f[1], SynchronousCommit: f[2], Encoding: f[3]}
		}
	}
	return nodes, postgres.Translate(err)
}

// run runs a query that returns one text on the node. If that fails it sets the reason, and the text is empty.
func (n *node) run(ctx context.Context, conn *pgx.Conn, query string) (text string, err error) {
	var ok bool
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, setNodeTimeouts, milliseconds(connectTimeout), milliseconds(queryTimeout))
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, runOnNode, n.host, n.port, query).Scan(&ok, &text)
	})
	if err == nil && ok {
		return text, nil
	}
	n.reason = text
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == postgres.QueryCanceled {
		n.reason, err = fmt.Sprintf("no response within %v", queryTimeout), nil
	}
	return "", err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// selectShardLines returns the lines of postgres.SelectLines about the shards on the node that runs it, without
// the columns and keys of shards, because Citus creates them.
const selectShardLines = `
	WITH ours AS (SELECT pg_class.* FROM pg_dist_shard JOIN pg_dist_placement USING (shardid)
		JOIN pg_class ON pg_class.oid = to_regclass(shard_name(logicalrelid, shardid))
		WHERE logicalrelid::text = ANY ('{%s}') AND groupid = (SELECT groupid FROM pg_dist_local_group))
	SELECT coalesce(string_agg(line, '|'), '') FROM (%s) AS found WHERE line !~ ': (column|key) '`

// shardProblems returns what is unsafe about the shards on the nodes that respond.
func shardProblems(ctx context.Context, conn *pgx.Conn, nodes []node) (problems []string, err error) {
	query := fmt.Sprintf(selectShardLines, strings.Join(postgres.Tables, ","), postgres.SelectLines)
	for _, n := range nodes {
		if n.reason != "" {
			continue
		}
		text, err := n.run(ctx, conn, query)
		if err != nil {
			return nil, postgres.Translate(err)
		}
		lines := strings.FieldsFunc(text, func(r rune) bool { return r == '|' })
		for _, p := range storage.Drift(lines, nil) {
			problems = append(problems, n.name()+": "+p)
		}
	}
	return problems, nil
}

// health is the result of a check of all nodes.
type health struct {
	err    error            // what is wrong, or nil
	unsafe bool             // a node can lose what it confirms
	counts map[string]int64 // nodes by state, see storage.Stats
}

// admit checks the nodes for the first time, and refuses them if one can lose what it confirms or has unsafe tables.
func (c *cluster) admit(ctx context.Context, conn *pgx.Conn) error {
	nodes, err := readNodes(ctx, conn)
	if err != nil {
		return err
	}
	c.health.Store(healthOf(nodes, c.opts))
	if err := c.Unsafe(); err != nil || c.opts.ReadOnly {
		return err
	}
	problems, err := shardProblems(ctx, conn, nodes)
	if err != nil {
		return err
	}
	return c.opts.Refuse(problems)
}

// check checks the nodes and reads the layout. It has a connection of its own, so that a node that hangs blocks no
// connection of a request.
func (c *cluster) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout) // in time to name nodes that hang
	defer cancel()
	conn, err := postgres.Connect(ctx, c.config, postgres.Options{UnsafeDurability: true})
	var nodes []node
	if err == nil {
		defer conn.Close(ctx)
		nodes, err = readNodes(ctx, conn)
	}
	if err != nil {
		c.health.Store(c.health.Load().unknown(err))
		return
	}
	c.health.Store(healthOf(nodes, c.opts))
	_ = c.refreshLayout(ctx, conn) // after a failure it stays as it was, which is safe: see layout
}

// healthOf returns the health of nodes that were just checked.
func healthOf(nodes []node, opts postgres.Options) *health {
	h := &health{counts: map[string]int64{"ok": 0, "down": 0, "unsafe": 0, "unknown": 0}}
	var problems []string
	for _, n := range nodes {
		state := "ok"
		if n.reason != "" {
			state = "down"
			problems = append(problems, fmt.Sprintf("%s does not respond: %s", n.name(), n.reason))
		} else if text := n.settings.Problem(n.name(), opts); text != "" {
			state, h.unsafe = "unsafe", true
			problems = append(problems, text)
		}
		h.counts[state]++
	}
	if len(problems) > 0 {
		h.err = fmt.Errorf("%w: %s", storage.ErrUnavailable, strings.Join(problems, "; "))
	}
	return h
}

// unknown returns the health after a check that failed. A node that was unsafe probably still is.
func (h health) unknown(err error) *health {
	total := int64(0)
	for _, n := range h.counts {
		total += n
	}
	h.counts = map[string]int64{"ok": 0, "down": 0, "unsafe": 0, "unknown": total}
	if !h.unsafe {
		h.err = err
	}
	return &h
}
