package citus

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/singleflight"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres"
)

// cluster implements postgres.Cluster.
type cluster struct {
	config *pgx.ConnConfig // of the connections of check
	opts   postgres.Options
	layout atomic.Pointer[layout] // nil: plants are not distributed
	health atomic.Pointer[health] // of the last check of the nodes
	checks singleflight.Group
}

const (
	hasCitus      = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
	isCoordinator = "SELECT groupid = 0 FROM pg_dist_local_group" // also if there are no workers
)

// find implements postgres.Finder. If the tables are about to be created or changed, it refuses a worker: tables that
// are created there are not those of the cluster.
func find(ctx context.Context, conn *pgx.Conn, migrates bool) (postgres.Cluster, error) {
	var found, coordinator bool
	if err := conn.QueryRow(ctx, hasCitus).Scan(&found); err != nil || !found {
		return nil, err
	}
	if err := conn.QueryRow(ctx, isCoordinator).Scan(&coordinator); err != nil {
		return nil, err
	}
	if migrates && !coordinator {
		return nil, errors.New("it is a worker of Citus, where the tables are missing or their schema is old; " +
			"run plantstore db migrate or db distribute with the URL of the coordinator")
	}
	c := &cluster{config: conn.Config()}
	c.health.Store(&health{})
	return c, c.refreshLayout(ctx, conn)
}

func (c *cluster) refreshLayout(ctx context.Context, conn *pgx.Conn) error {
	l, err := readLayout(ctx, conn)
	if err == nil {
		c.layout.Store(l)
	}
	return err
}

func (c *cluster) Settings(attempt time.Duration) map[string]string {
	return map[string]string{
		"citus.max_adaptive_executor_pool_size": "1", // connections to a node for one query: a second takes longer to open
		"citus.node_connection_timeout":         strconv.FormatInt(attempt.Milliseconds()/2, 10),

		// A generic plan can't send LIMIT $3 to the workers: they would return all plants.
		"plan_cache_mode": "force_custom_plan",
	}
}

func (c *cluster) Servers() int {
	if l := c.layout.Load(); l != nil {
		return l.servers
	}
	return 0
}

func (c *cluster) Unsafe() error {
	if h := c.health.Load(); h.unsafe {
		return h.err
	}
	return nil
}

// A node relays the errors of other nodes as ERRORs of its own. One that says that the connection to another node was
// lost, or that the other node's session has ended, proves nothing about a commit there.
func (c *cluster) ProvesRollback(code string) bool {
	return slices.Contains(rejectedClasses, code[:min(2, len(code))])
}

// rejectedClasses are the classes of error codes that a server raises only before a commit.
var rejectedClasses = []string{
	"0A", // feature not supported
	"22", // data exception
	"23", // integrity constraint violation
	"25", // invalid transaction state
	"28", // invalid authorization
	"3D", // invalid catalog name
	"40", // transaction rollback
	"42", // syntax error or access rule violation
	"53", // insufficient resources
	"55", // object not in prerequisite state
}

func (c *cluster) OnePerShard(keys []plant.Key) []plant.Key {
	l := c.layout.Load()
	if l == nil {
		return nil
	}
	inShard := map[int]plant.Key{}
	for _, key := range keys {
		inShard[l.find(key)] = key
	}
	return slices.Collect(maps.Values(inShard))
}

func (c *cluster) Diagnose(ctx context.Context, conn *pgx.Conn, found *storage.Findings) error {
	nodes, err := readNodes(ctx, conn)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.reason != "" {
			found.Add("durability", "problem", "%s does not respond: %s; start it, or find the reason with "+
				"SELECT citus_check_connection_to_node('%s', %d)", n.name(), n.reason, n.host, n.port)
		} else {
			n.settings.Diagnose(found, n.name())
		}
	}
	problems, err := shardProblems(ctx, conn, nodes)
	for _, p := range problems {
		found.Add("tables", "problem", "%s", p)
	}
	if err != nil {
		return err
	}
	d, err := readDistribution(ctx, conn)
	if err == nil && d.kind["plants"] == kindDistributed {
		found.Add("distribution", "ok", "by %s, %d shards", d.By, d.Shards)
	} else if err == nil {
		found.Add("distribution", "warning", "all plants are on the coordinator; use plantstore db distribute")
	}
	return err
}
