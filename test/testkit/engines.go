package testkit

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore/internal/storage/postgres/pgtest"
)

// Engine makes an empty database for a test and returns the value of --db for it. The test is skipped if the machine
// lacks the engine.
type Engine struct {
	Name     string
	Database func(t *testing.T) string
}

// Engines are the engines on which the tests of HTTP and of commands run. The first needs no other program.
var Engines = []Engine{
	{"sqlite", func(t *testing.T) string { return filepath.Join(t.TempDir(), "plants.db") }},
	{"postgres", func(t *testing.T) string { return pgtest.Database(t) }},
}

// AllEngines are Engines and both distributions of Citus, for tests whose subject is the engine. The database of Citus
// is on the coordinator of the cluster that the tests share.
var AllEngines = append(slices.Clone(Engines),
	Engine{"citus by id", func(t *testing.T) string { return shared(t, "id") }},
	Engine{"citus by store", func(t *testing.T) string { return shared(t, "store") }},
)

// shared returns a database of the shared cluster. make test does not use Citus.
func shared(t *testing.T, by string) string {
	t.Helper()
	Long(t)
	return Distributed(t, pgtest.SharedCluster(t), by)
}

// OneOfEach is AllEngines with only one distribution of Citus, for tests that take long.
func OneOfEach() []Engine { return AllEngines[:3] }

// ServerEngines are the engines whose databases several processes on several machines can use.
func ServerEngines() []Engine { return AllEngines[1:] }

// Distributed returns the URL of a database of a cluster whose plants are distributed by a column.
func Distributed(t *testing.T, c *pgtest.Cluster, by string) string {
	t.Helper()
	return c.Prepared(t, by, func(address string) {
		out, errs, code := Run(t, nil, "db", "distribute", "--db", address, "--by", by, "--shards", "4")
		if code != 0 {
			t.Fatalf("db distribute --by %s: exit %d, %s%s", by, code, out, errs)
		}
	})
}

// OnEachDatabase runs a test with a new database of each engine, in parallel.
func OnEachDatabase(t *testing.T, test func(t *testing.T, db string)) {
	for _, e := range Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			test(t, e.Database(t))
		})
	}
}

// OnEachEngine runs a test against a server on a new database of each engine.
func OnEachEngine(t *testing.T, test func(t *testing.T, s *Server), args ...string) {
	for _, e := range Engines {
		t.Run(e.Name, func(t *testing.T) { test(t, Start(t, e.Database(t), args...)) })
	}
}

// Query runs statements in a database, which a service may use, and returns the rows of all, every value as text.
func Query(t testing.TB, db, sql string) (rows [][]string) {
	t.Helper()
	if strings.HasPrefix(db, "postgres") {
		return pgtest.Shared(t).Query(t, pgtest.Name(db), sql)
	}
	conn, err := sqlite.OpenConn(db, sqlite.OpenReadWrite)
	if err == nil {
		defer conn.Close()
		conn.SetBusyTimeout(Deadline)
		err = sqlitex.ExecuteScript(conn, sql, &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
			var values []string
			for i := range row.ColumnCount() {
				values = append(values, row.ColumnText(i))
			}
			rows = append(rows, values)
			return nil
		}})
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}

// Servers are one server on each engine, which must respond alike.
type Servers []engineServer

type engineServer struct {
	*Server
	engine string
}

// StartOnEachEngine starts a server on a new database of each engine.
func StartOnEachEngine(t *testing.T, args ...string) Servers {
	t.Helper()
	return startOn(t, Engines, args...)
}

// StartOnAllEngines is StartOnEachEngine, in make test-all with both distributions of Citus.
func StartOnAllEngines(t *testing.T, args ...string) Servers {
	t.Helper()
	if testing.Short() {
		return startOn(t, Engines, args...)
	}
	if !pgtest.HasCitus() {
		t.Run("citus", func(t *testing.T) { pgtest.SharedCluster(t) }) // says that Citus was not tested
		return startOn(t, Engines, args...)
	}
	return startOn(t, AllEngines, args...)
}

func startOn(t *testing.T, engines []Engine, args ...string) (all Servers) {
	t.Helper()
	for _, e := range engines {
		all = append(all, engineServer{Start(t, e.Database(t), args...), e.Name})
	}
	return all
}

// Do sends a request to each server and fails the test where their responses differ. On a busy machine a node of Citus
// may not accept a connection in time, so a request that was not executed is repeated.
func (all Servers) Do(t testing.TB, method, path, body string, headers ...string) Response {
	t.Helper()
	do := func(s engineServer) (a Response) {
		WaitFor(t, "the database of "+s.engine, func() bool {
			a = s.Do(t, method, path, body, headers...)
			return a.Number() != 50303
		})
		return a
	}
	first := do(all[0])
	for _, s := range all[1:] {
		a := do(s)
		if a.Status != first.Status || a.Body != first.Body ||
			a.Header.Get("ETag") != first.Header.Get("ETag") || a.Header.Get("Link") != first.Header.Get("Link") {
			t.Errorf("%s %s %.100s: %s returns %d %s, %s returns %d %s", method, path, body,
				all[0].engine, first.Status, first.Body, s.engine, a.Status, a.Body)
		}
	}
	return first
}

// Create sends POST /plants to each server.
func (all Servers) Create(t testing.TB, body string) Response {
	t.Helper()
	return all.Do(t, "POST", "/plants", body, ContentJSON)
}
