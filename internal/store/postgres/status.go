package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
)

// Status is the state of a database, for an operator.
type Status struct {
	Engine       string        `json:"engine"`
	Database     string        `json:"database"` // the URL without the password
	Version      string        `json:"version"`
	Citus        string        `json:"citus,omitzero"` // its version, if it is in use
	Schema       int           `json:"schema"`         // 0: there are no tables
	Plants       int64         `json:"plants"`
	PlantsExact  bool          `json:"plantsExact"` // otherwise the server's estimate, without nodes that do not respond
	Tokens       int64         `json:"tokens"`
	Bytes        int64         `json:"bytes"` // of plants and their index, on the nodes that respond
	Distribution *Distribution `json:"distribution,omitzero"`
	Nodes        []NodeStatus  `json:"nodes"`

	problems []string // of the tables and shards
}

// NodeStatus is the state of a server.
type NodeStatus struct {
	Address  string   `json:"address"`
	Role     string   `json:"role"`              // server, coordinator or worker
	State    string   `json:"state"`             // ok, unsafe or down
	Reason   string   `json:"reason,omitzero"`   // why it is not ok
	Settings settings `json:"settings,omitzero"` // if it is not down
	Shards   int      `json:"shards"`
	Bytes    int64    `json:"bytes"` // of its shards
}

const (
	selectVersions = `
		SELECT split_part(current_setting('server_version'), ' ', 1),
			EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')`
	selectCitusVersion = "SELECT split_part(citus_version(), ' ', 2)"
	countTokens        = "SELECT count(*) FROM tokens"
	countEveryPlant    = "SELECT count(*) FROM plants"

	selectSize = "SELECT pg_total_relation_size('plants'), reltuples::bigint FROM pg_class WHERE oid = 'plants'::regclass"

	// The shards of plants on a node: how many, their bytes, the estimated number of rows, and the lowest estimate, which
	// is -1 if the server has none.
	nodeShards = `
		SELECT concat_ws(' ', count(*), coalesce(sum(pg_total_relation_size(shard)), 0),
			coalesce(sum(reltuples::bigint), 0), coalesce(min(reltuples::bigint), 0))
		FROM (
			SELECT to_regclass(shard_name(logicalrelid, shardid)) AS shard
			FROM pg_dist_shard JOIN pg_dist_placement USING (shardid)
			WHERE logicalrelid = to_regclass('plants') AND groupid = (SELECT groupid FROM pg_dist_local_group)
		) AS placed LEFT JOIN pg_class ON oid = shard`
)

// maxCounted is the size in bytes up to which the rows of a table are always counted. That takes seconds.
const maxCounted = 256 << 20

// ReadStatus returns the state of the database at a URL, and of every node of its cluster. It changes nothing. Plants
// of large tables are counted only if count is set. If a node does not respond or can lose what it
// confirms, the status is complete and the error says so.
func ReadStatus(ctx context.Context, address string, count bool) (*Status, error) {
	config, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	s := &Status{Engine: "postgresql", Database: displayURL(config.ConnConfig)}
	limit := int64(maxCounted)
	if count {
		limit = math.MaxInt64
	}
	problem, err := s.read(ctx, config.ConnConfig, limit)
	if err != nil {
		return nil, fmt.Errorf("read the status of the database %s: %w", s.Database, translate(err))
	}
	return s, problem
}

// read counts the plants if they take at most limit bytes.
func (s *Status) read(ctx context.Context, config *pgx.ConnConfig, limit int64) (problem, err error) {
	config = config.Copy()
	config.RuntimeParams["statement_timeout"] = "0"
	conn, err := connect(ctx, config, Options{UnsafeDurability: true})
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var citus bool
	if err := conn.QueryRow(ctx, selectVersions).Scan(&s.Version, &citus); err != nil {
		return nil, err
	}
	if s.Schema, err = schemaVersion(ctx, conn, math.MaxInt); err != nil {
		return nil, err
	}
	nodesConn := newNodeConn(config, defaultTimeouts)
	defer nodesConn.close()
	nodes, err := nodesConn.nodes(ctx)
	if err != nil {
		return nil, err
	}
	if citus {
		if err := conn.QueryRow(ctx, selectCitusVersion).Scan(&s.Citus); err != nil {
			return nil, err
		}
	}
	if len(nodes) == 0 {
		n := node{host: config.Host, port: int(config.Port)}
		if n.settings, err = sessionOf(conn).readSettings(ctx, conn); err != nil {
			return nil, err
		}
		nodes = []node{n}
	}
	s.addNodes(nodes, citus)
	if s.Schema > 0 {
		err = s.readSizes(ctx, conn, nodesConn, nodes, limit)
	}
	if s.Schema > 0 && err == nil {
		s.problems, err = tableProblems(ctx, conn)
	}
	if s.Schema > 0 && err == nil && citus {
		var shards []string
		shards, err = nodesConn.shardProblems(ctx, nodes)
		s.problems = append(s.problems, shards...)
	}
	return nodesError(nodes, Options{}), err
}

func (s *Status) addNodes(nodes []node, cluster bool) {
	for _, n := range nodes {
		status := NodeStatus{Address: n.address(), Role: "worker", State: "ok", Reason: n.reason, Settings: n.settings}
		if n.coordinator {
			status.Role = "coordinator"
		} else if !cluster {
			status.Role = "server"
		}
		if n.reason != "" {
			status.State = "down"
		} else if text, _ := n.settings.problem("it", Options{}); text != "" {
			status.State, status.Reason = "unsafe", text
		}
		s.Nodes = append(s.Nodes, status)
	}
}

// readSizes reads the sizes of tables. Those of shards are read on their nodes, so that a node that hangs is skipped.
func (s *Status) readSizes(ctx context.Context, conn *pgx.Conn, nodesConn *nodeConn, nodes []node, limit int64) error {
	if err := conn.QueryRow(ctx, countTokens).Scan(&s.Tokens); err != nil {
		return err
	}
	var d distribution
	var err error
	if s.Citus != "" {
		if d, err = readDistribution(ctx, conn); err != nil {
			return err
		}
	}
	estimated := true
	if d.kind["plants"] == kindDistributed {
		s.Distribution = &d.Distribution
		estimated, err = s.readShards(ctx, nodesConn, nodes)
	} else {
		err = conn.QueryRow(ctx, selectSize).Scan(&s.Bytes, &s.Plants)
		if len(s.Nodes) == 1 {
			s.Nodes[0].Bytes = s.Bytes
		}
		estimated = s.Plants >= 0
	}
	down := nodesError(nodes, Options{UnsafeDurability: true}) != nil
	if err != nil || down || estimated && s.Bytes > limit {
		return err
	}
	s.PlantsExact = true
	return conn.QueryRow(ctx, countEveryPlant).Scan(&s.Plants)
}

// readShards reads the sizes of the shards. estimated reports whether every shard has an estimate of its rows.
func (s *Status) readShards(ctx context.Context, nodesConn *nodeConn, nodes []node) (estimated bool, err error) {
	estimated = true
	for i, n := range nodes {
		if n.reason != "" {
			continue
		}
		results, err := nodesConn.run(ctx, nodes[i:i+1], nodeShards)
		if err != nil {
			return false, err
		}
		var rows, lowest int64
		status := &s.Nodes[i]
		if _, err := fmt.Sscan(results[0].text, &status.Shards, &status.Bytes, &rows, &lowest); err != nil {
			return false, fmt.Errorf("%s: %s", n.name(), results[0].text)
		}
		s.Bytes += status.Bytes
		s.Plants += max(0, rows)
		estimated = estimated && lowest >= 0
	}
	return estimated, nil
}
