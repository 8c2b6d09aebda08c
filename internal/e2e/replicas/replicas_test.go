package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

const (
	racers     = 64
	racedIDs   = 1000 // by two servers, and as many by three
	racedStep  = 10   // ids that the racers take on together, each beginning with another
	nameOfRace = "plant %d of client %d"
)

// race lets every client create every id under a name of its own, through the server that is its turn. It
// returns who won each id, and everything that is not as it must be: one 200 for each id, and for all
// others that the id is taken.
func race(t *testing.T, all []*testkit.Server, ids int) (winners []int, lies []string) {
	t.Helper()
	var mu sync.Mutex
	winners = make([]int, ids)
	for id := range winners {
		winners[id] = -1
	}
	note := func(id, c int, a testkit.Response) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case a.Status == 200 && winners[id] < 0:
			winners[id] = c
		case a.Status == 200:
			lies = append(lies, fmt.Sprintf("plant %d was created by client %d and by client %d", id, winners[id], c))
		case a.Status != 400 || a.Number() != 40009:
			lies = append(lies, fmt.Sprintf("plant %d of client %d: answered %d %s", id, c, a.Status, a.Body))
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
					note(id, c, s.Create(id, fmt.Sprintf(nameOfRace, id, c)))
				}
			})
		}
		wg.Wait()
	}
	for id, c := range winners {
		if c < 0 {
			lies = append(lies, fmt.Sprintf("plant %d was created by nobody", id))
		}
	}
	return winners, lies
}

// The same ids raced through several servers have one winner each. Every loser is told the truth, the winner's
// plant is what every server reads, and the winner may repeat itself through any of them.
func TestOneWinnerForEachID(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			t.Parallel()
			all := testkit.StartReplicas(t, pgtest.Database(t), n)
			winners, lies := race(t, all, racedIDs)
			if len(lies) > 0 {
				t.Fatalf("%d lies, the first: %s", len(lies), lies[0])
			}
			won := make([]int, n)
			for _, c := range winners {
				won[c%n]++
			}
			t.Logf("plants created through each server: %v", won)
			for server, p := range all {
				if won[server] == 0 {
					t.Errorf("server %d of %d won nothing: that was no race", server, n)
				}
				again := p.Connect(t)
				stored := names(t, p)
				for id, c := range winners {
					want := fmt.Sprintf(nameOfRace, id, c)
					if stored[id] != want {
						t.Errorf("plant %d is %q, want the winner's %q", id, stored[id], want)
					}
					if a := again.Create(id, want); a.Status != 200 {
						t.Errorf("plant %d again, by its winner: answered %d %s", id, a.Status, a.Body)
					}
				}
				if len(stored) != racedIDs {
					t.Errorf("%d plants are stored, want %d", len(stored), racedIDs)
				}
			}
		})
	}
}

// names reads all plants of a store of 1000 at most.
func names(t *testing.T, p *testkit.Server) map[int]string {
	t.Helper()
	a := p.Do(t, "GET", "/plants?limit=1000", "")
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

// The same race through servers that do not share a database must be noticed.
func TestRaceCatchesTwoWinners(t *testing.T) {
	t.Parallel()
	apart := []*testkit.Server{testkit.Start(t, pgtest.Database(t)), testkit.Start(t, pgtest.Database(t))}
	if _, lies := race(t, apart, racedStep); len(lies) == 0 {
		t.Error("two winners of one id were not noticed")
	}
}

func TestRevokedOnEveryServer(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	all := testkit.StartReplicas(t, db, 3)
	credential := testkit.IssueToken(t, db, "--name", "short-lived")
	for _, p := range all {
		p.Token = credential
		testkit.WantResponse(t, "before", p.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
	}
	if _, errs, code := testkit.Run(t, nil, "token", "revoke", "--db", db, "short-lived"); code != 0 {
		t.Fatalf("token revoke: exit %d, %s", code, errs)
	}
	revoked := time.Now()
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			for { // a busy client: what the server believes of its token is as fresh as can be
				after := time.Since(revoked) // who is let in then may wait for the disk
				a := p.Create(t, `{"id":1,"name":"x"}`)
				if a.Status != 200 {
					testkit.WantError(t, "after", a, 40106)
					t.Logf("server %d: revoked after %v", i, after.Round(time.Millisecond))
					return
				}
				if after > 2*time.Second {
					t.Errorf("server %d accepts the token %v after it was revoked", i, after)
					return
				}
			}
		})
	}
	wg.Wait()
}

// One of three servers is killed under load. Its clients go to the others, which go on, and nothing is lost.
func TestServerOfThreeIsKilled(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	all := testkit.StartReplicas(t, db, 3)
	var targets []testkit.Target
	for _, p := range all {
		targets = append(targets, p.Target())
	}
	tr := drive(t, true, targets...)
	tr.await(calm, 10*time.Second)
	all[1].Kill()
	tr.await(5*calm, 10*time.Second)
	for _, p := range []*testkit.Server{all[0], all[2]} {
		wantReady(t, p, 200, 5*time.Second)
	}
	for number := range tr.count() {
		if number/100 == 503 {
			t.Errorf("answered %d: the others did not go on", number)
		}
	}
	tr.wantClean(db)
}

// Ten servers that start at once on an empty database all come up, and one of them issues the first token.
func TestTenStartAtOnce(t *testing.T) {
	t.Parallel()
	all := launchAll(t, pgtest.Database(t), 10)
	first := oneFirstToken(t, all)
	for i, p := range all {
		p.Token = first
		testkit.WantResponse(t, fmt.Sprint("server ", i), p.Create(t, fmt.Sprintf(`{"id":%d,"name":"x"}`, i)), 200, `{"name":"x"}`)
		wantReady(t, p, 200, 5*time.Second)
	}
	if stored := names(t, all[0]); len(stored) != len(all) {
		t.Errorf("%d plants are stored, want %d", len(stored), len(all))
	}
}

// Servers that all find no token at the same moment still issue one.
func TestOneFirstToken(t *testing.T) {
	t.Parallel()
	for range 3 {
		all, together := startTogether(t, 4)
		oneFirstToken(t, all)
		if together {
			return
		}
	}
	t.Log("the machine is too slow: the servers never came together")
}

// startTogether starts servers that wait for each other before they look for a token, and reports whether all did. On a
// slow machine the first does not wait for the last: it would give up.
func startTogether(t *testing.T, n int) (all []*testkit.Server, together bool) {
	t.Helper()
	server, db := pgtest.Shared(t), pgtest.Database(t)
	openDatabase(t, db) // makes the tables
	other, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	if _, err := other.Exec(t.Context(), "BEGIN; LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	all = launchAll(t, db+"&lock_timeout=20s", n) // with which it is 5 s that a server waits
	waiting := "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '" + testkit.DatabaseName(t, db) + "'"
	var first time.Time // when one was seen to wait
	for begun := time.Now(); !together && time.Since(begun) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		found := server.Query(t, "postgres", waiting)[0][0]
		if together = found == strconv.Itoa(n); found != "0" && first.IsZero() {
			first = time.Now()
		}
		if !first.IsZero() && time.Since(first) > time.Second {
			break
		}
	}
	if _, err := other.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	return all, together
}

func launchAll(t *testing.T, db string, n int) (all []*testkit.Server) {
	t.Helper()
	for range n {
		all = append(all, testkit.Launch(t, exec.Command(testkit.Binary, "serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")))
	}
	return all
}

// oneFirstToken waits until all are up, and returns the token that one of them has issued. That no other has is seen
// when all have ended: who finds that another was first says nothing of a token, so there is nothing to wait for.
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
			p.Kill() // after which all that it has printed is read
		}
		if tokens := printed(); len(tokens) > 1 {
			t.Errorf("%d first tokens were issued, want one", len(tokens))
		}
	})
	testkit.WaitFor(t, "a first token", func() bool { return len(printed()) > 0 })
	return printed()[0]
}
