package replicas

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
)

// nodesOf returns n URLs of one database. On Citus each is on another node: by id they start with the coordinator, by
// store with the workers.
func nodesOf(t *testing.T, e testkit.Engine, n int) (urls []string) {
	t.Helper()
	db := e.Database(t)
	nodes := []string{db}
	if strings.HasPrefix(e.Name, "citus") {
		c := pgtest.SharedCluster(t)
		nodes = append(nodes, c.Worker(0, db), c.Worker(1, db))
	}
	if e.Name == "citus by store" {
		slices.Reverse(nodes)
	}
	for i := range n {
		urls = append(urls, nodes[i%len(nodes)])
	}
	return urls
}

const (
	racers     = 64
	racedStep  = 10 // ids that the clients create at the same time, each in another order
	nameOfRace = "plant %d of client %d"
)

// race makes every client create every id under a name of its own, spread over the servers, and returns the winner of
// each id: exactly one client must get 200 for an id, and all others that the id is taken.
func race(t *testing.T, all []*testkit.Server, ids int) (winners []int) {
	t.Helper()
	var mu sync.Mutex
	winners = make([]int, ids)
	for id := range winners {
		winners[id] = -1
	}
	record := func(id, c int, a testkit.Response) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case a.Status == 200 && winners[id] < 0:
			winners[id] = c
		case a.Status == 200:
			t.Errorf("plant %d was created by clients %d and %d", id, winners[id], c)
		case a.Status != 400 || a.Number() != 40009:
			t.Errorf("plant %d of client %d: %d %s", id, c, a.Status, a.Body)
		}
	}
	clients := make([]*testkit.Conn, racers)
	for c := range clients {
		clients[c] = all[c%len(all)].Connect(t)
	}
	for first := 0; first < ids; first += racedStep {
		var wg sync.WaitGroup
		for c, s := range clients {
			wg.Go(func() {
				for i := range racedStep {
					id := first + (c+i)%racedStep
					record(id, c, createWhenUp(t, s, id, fmt.Sprintf(nameOfRace, id, c)))
				}
			})
		}
		wg.Wait()
	}
	if id := slices.Index(winners, -1); id >= 0 {
		t.Errorf("plant %d was not created", id)
	}
	if t.Failed() {
		t.FailNow()
	}
	return winners
}

// createWhenUp creates a plant, and repeats the create while the database is unavailable: on a busy machine a node of
// Citus may not accept a connection in time.
func createWhenUp(t *testing.T, c *testkit.Conn, id int, name string) (a testkit.Response) {
	t.Helper()
	testkit.WaitFor(t, "a database that is available", func() bool {
		a = c.Create(id, name)
		return a.Status != 503
	})
	return a
}

// Clients that create the same ids through several servers have one winner for each. The others learn that the id is
// taken, every server returns the winner's plant, and the winner may repeat its create through any server.
func TestOneWinnerForEachID(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.ServerEngines() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			const n, ids = 3, 200
			all := testkit.StartReplicas(t, nodesOf(t, e, n))
			winners := race(t, all, ids)
			won := make([]int, n)
			for _, c := range winners {
				won[c%n]++
			}
			t.Logf("plants created through each server: %v", won)
			for _, p := range all {
				again := p.Connect(t)
				stored := names(t, p)
				for id, c := range winners {
					want := fmt.Sprintf(nameOfRace, id, c)
					if stored[id] != want {
						t.Errorf("plant %d is %q, want the winner's %q", id, stored[id], want)
					}
					if a := createWhenUp(t, again, id, want); a.Status != 200 {
						t.Errorf("plant %d again, by its winner: %d %s", id, a.Status, a.Body)
					}
				}
				if len(stored) != ids {
					t.Errorf("%d plants are stored, want %d", len(stored), ids)
				}
			}
		})
	}
}

// names returns the names of all plants of a store with at most 1000.
func names(t *testing.T, p *testkit.Server) map[int]string {
	t.Helper()
	var a testkit.Response
	testkit.WaitFor(t, "a database that is available", func() bool {
		a = p.Do(t, "GET", "/plants?limit=1000", "")
		return a.Status != 503
	})
	var page []struct {
		ID   int
		Name string
	}
	if err := json.Unmarshal([]byte(a.Body), &page); err != nil {
		t.Fatalf("list: %d %s: %v", a.Status, a.Body, err)
	}
	names := map[int]string{}
	for _, plant := range page {
		names[plant.ID] = plant.Name
	}
	return names
}

// Every server refuses a revoked token after two seconds.
func TestRevokedOnEveryServer(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.ServerEngines() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			nodes := nodesOf(t, e, 3)
			all := testkit.StartReplicas(t, nodes)
			credential := testkit.IssueToken(t, nodes[1], "--name", "short-lived")
			for _, p := range all {
				p.Token = credential
				testkit.WantResponse(t, "before", createWhenUp(t, p.Connect(t), 1, "x"), 200, `{"name":"x"}`)
			}
			if _, errs, code := testkit.Run(t, nil, "token", "revoke", "--db", nodes[2], "short-lived"); code != 0 {
				t.Fatalf("token revoke: exit %d, %s", code, errs)
			}
			revoked := time.Now()
			var wg sync.WaitGroup
			for i, p := range all {
				wg.Go(func() {
					for { // A busy client keeps its token in the cache.
						after := time.Since(revoked) // The create itself may wait for the disk.
						a, err := p.Send("POST", "/plants", `{"id":1,"name":"x"}`)
						switch {
						case err != nil:
							t.Errorf("server %d: %v", i, err)
							return
						case a.Status == 503 && after < testkit.Deadline:
						case a.Status != 200:
							testkit.WantError(t, "after", a, 40106)
							t.Logf("server %d: revoked after %v", i, after.Round(time.Millisecond))
							return
						case after > 2*time.Second:
							t.Errorf("server %d accepts the token %v after it was revoked", i, after)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// Ten servers that start at the same time on an empty database all serve, and one of them issues the first token.
func TestTenStartAtOnce(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.ServerEngines() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			var all []*testkit.Server
			for _, db := range nodesOf(t, e, 10) {
				all = append(all, testkit.Launch(t, testkit.Serve(db)))
			}
			first := oneFirstToken(t, all)
			for i, p := range all {
				p.Token = first
				a := createWhenUp(t, p.Connect(t), i, "x")
				testkit.WantResponse(t, fmt.Sprint("server ", i), a, 200, `{"name":"x"}`)
				p.WaitReady(t, true)
			}
			if stored := names(t, all[0]); len(stored) != len(all) {
				t.Errorf("%d plants are stored, want %d", len(stored), len(all))
			}
		})
	}
}

// oneFirstToken waits until all servers listen and returns the token that one of them issued. That no other did is
// checked when all have ended, since a server that issues no token prints nothing to wait for.
func oneFirstToken(t *testing.T, all []*testkit.Server) string {
	t.Helper()
	printed := func() (tokens []string) {
		for _, p := range all {
			if found := testkit.TokenPattern.FindString(p.Stdout.String()); found != "" {
				tokens = append(tokens, found)
			}
		}
		return tokens
	}
	for _, p := range all {
		p.WaitListening()
	}
	t.Cleanup(func() {
		for _, p := range all {
			p.Kill() // Then its output is complete.
		}
		if tokens := printed(); len(tokens) > 1 {
			t.Errorf("%d first tokens were issued, want one", len(tokens))
		}
	})
	testkit.WaitFor(t, "a first token", func() bool { return len(printed()) > 0 })
	return printed()[0]
}

// A database is distributed under traffic. The command is killed and repeated, and then changes the column and the
// number of shards. No acknowledged plant is lost, and no plant that was refused is stored.
func TestDistributeUnderTraffic(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	c := pgtest.SharedCluster(t)
	db := c.Database(t)
	p := testkit.Start(t, db)
	const others = 50_000 // plants of another store, so that it takes a while
	c.Query(t, pgtest.Name(db), fmt.Sprintf(
		"INSERT INTO plants SELECT 'other', i, 'plant ' || i FROM generate_series(1, %d) AS i", others))
	tr := drive(t, p.Target())
	tr.Wait(t, enoughCreates)

	killed := testkit.Launch(t, exec.Command(testkit.Binary, "db", "distribute", "--db", db))
	testkit.WaitFor(t, "the command to distribute", func() bool {
		return strings.Contains(killed.Stdout.String(), "Distributing ")
	})
	killed.Kill()
	tr.Wait(t, enoughCreates)
	for _, flags := range []string{"", "--shards 6", "--by store", "--by id --shards 4"} {
		args := append([]string{"db", "distribute", "--db", db}, strings.Fields(flags)...)
		out, errs, code := testkit.Run(t, nil, args...)
		done := strings.Contains(out, "Done: ") || flags == "" && strings.Contains(out, "Nothing to do: ") // killed too late
		if code != 0 || !done || errs != "" {
			t.Fatalf("db distribute %s: exit %d, %s%s", flags, code, out, errs)
		}
		tr.Wait(t, enoughCreates)
	}
	tr.stop()
	tr.CheckMany(t, p.Target())
	for _, node := range c.Nodes() {
		rows := node.Query(t, pgtest.Name(db), "SELECT count(*) FROM plants WHERE store = 'other'")
		if got := rows[0][0]; got != fmt.Sprint(others) {
			t.Errorf("the node at port %d counts %s plants of the other store, want %d", node.Port, got, others)
		}
	}
}
