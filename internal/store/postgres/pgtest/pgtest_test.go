package pgtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const runner = "PGTEST_RUNNER" // set in the process that TestStartForRun kills

func TestMain(m *testing.M) {
	if os.Getenv(runner) != "" {
		env, _, err := StartForRun(os.Getenv(runner) == "citus")
		fmt.Println(strings.Join(env, " "), err)
		io.ReadAll(os.Stdin)
		return
	}
	os.Exit(Main(m))
}

func TestDatabases(t *testing.T) {
	one, two := Database(t), Database(t)
	s, again := Shared(t), Shared(t)
	if one == two || s != again {
		t.Errorf("Database() = %s and %s, want different databases of one server", one, two)
	}
	name := Name(one)
	for kind, address := range map[string]string{
		"SocketURL": s.SocketURL(name),
		"Through":   s.Through(fmt.Sprintf("127.0.0.1:%d", s.Port), name),
		"Database":  one,
	} {
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		var database string
		err = conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&database)
		if err != nil || database != name {
			t.Errorf("%s: connected to %s, %v, want %s", kind, database, err, name)
		}
		conn.Close(t.Context())
	}
	if _, err := pgx.Connect(t.Context(), strings.ReplaceAll(one, Password, "wrong")); err == nil {
		t.Error("connected with a wrong password")
	}
	if got := s.Query(t, name, "SELECT 1, 'a'; SELECT 2, NULL"); fmt.Sprint(got) != "[[1 a] [2 ]]" {
		t.Errorf("Query() = %v", got)
	}
	t.Run("dropped", func(t *testing.T) { name = Name(Database(t)) })
	if _, err := s.Attempt(name, "SELECT 1"); err == nil {
		t.Errorf("the database %s outlives its test", name)
	}
}

func TestCluster(t *testing.T) { testCluster(t, SharedCluster(t)) }

// testCluster tests that a database of a cluster has all its nodes: a table is distributed over them and read on each.
func testCluster(t *testing.T, c *Cluster) {
	database := Name(c.Database(t))
	c.Query(t, database, "CREATE TABLE numbers (n bigint PRIMARY KEY)")
	c.Query(t, database, "SELECT create_distributed_table('numbers', 'n', shard_count => 4)")
	c.Query(t, database, "INSERT INTO numbers SELECT generate_series(1, 100)")
	for _, node := range c.Nodes() {
		if got := node.Query(t, database, "SELECT count(*) FROM numbers")[0][0]; got != "100" {
			t.Errorf("the node at port %d counts %s rows, want 100", node.Port, got)
		}
	}
}

// The servers of a run are used by other processes and end with the process that has started them, even if it is
// killed. The next one removes their directories.
func TestStartForRun(t *testing.T) {
	binaries(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), runner+"=postgres")
	if HasCitus() {
		cmd.Env = append(os.Environ(), runner+"=citus")
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	env := strings.Fields(line)
	if err != nil || len(env) < 2 || env[len(env)-1] != "<nil>" {
		t.Fatalf("StartForRun() = %s, %v", line, err)
	}
	var all []*Server
	for _, variable := range env[:len(env)-1] {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
		servers, err := running(name, findBinaries())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, servers...)
		if name == clusterVariable {
			t.Run("cluster", func(t *testing.T) { testCluster(t, newCluster(servers)) })
		}
	}
	t.Run("database", func(t *testing.T) { all[0].Query(t, Name(all[0].Database(t)), "SELECT 1") })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	for _, s := range all {
		wantEnded(t, s)
	}
	sharedFolder()
	for _, s := range all {
		if _, err := os.Stat(s.dir); memoryFolder() != "" && !os.IsNotExist(err) {
			t.Errorf("the directory of a killed process is left: %v", err)
		}
		os.RemoveAll(s.dir)
	}
}

// wantEnded waits until a server that another process has started has ended.
func wantEnded(t *testing.T, s *Server) {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		if _, err := s.Attempt("postgres", "SELECT 1"); err != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a server outlives the process that has started it")
		}
	}
}

// A committed row survives Stop and Kill9, at the same port and with the same settings. The processes of the server
// end, and its directory is removed with the test.
func TestStopAndKill(t *testing.T) {
	var s *Server
	t.Run("server", func(t *testing.T) {
		s = Start(t, map[string]string{"work_mem": "5MB"})
		port := s.Port
		s.Exec(t, "CREATE TABLE kept (n integer)")
		for i, stop := range []func() error{s.Stop, s.Kill9} {
			s.Exec(t, "INSERT INTO kept VALUES (1)")
			pids := append(childrenOf(s.process.Pid), s.process.Pid)
			if len(pids) < 2 || !alive(pids[0]) {
				t.Errorf("the server has the processes %v, want several that run", pids)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			for _, pid := range pids {
				if alive(pid) {
					t.Errorf("process %d still runs", pid)
				}
			}
			if err := s.Start(); err != nil || s.Port != port {
				t.Fatalf("Start() = %v at port %d, want %d", err, s.Port, port)
			}
			rows := s.Query(t, "postgres", "SELECT count(*), current_setting('work_mem') FROM kept")
			if got, want := fmt.Sprint(rows), fmt.Sprintf("[[%d 5MB]]", i+1); got != want {
				t.Errorf("after the restart: %s, want %s", got, want)
			}
		}
	})
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) || alive(s.process.Pid) {
		t.Errorf("the server is left after its test: %v", err)
	}
}
