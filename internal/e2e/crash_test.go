package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/sqlite"
)

// ledger is what a client knows of its plants: what it sent, and what it was told.
type ledger struct {
	mu      sync.Mutex
	sent    map[int64]plant.Plant // every plant that was sent in a valid request
	acked   map[int64]bool        // answered 200
	refused map[int64]bool        // sent in a body that was answered 400
}

func newLedger() *ledger {
	return &ledger{sent: map[int64]plant.Plant{}, acked: map[int64]bool{}, refused: map[int64]bool{}}
}

// load creates plants with many clients until the server is gone.
func (l *ledger) load(t *testing.T, p *process, clients int, next *atomic.Int64) {
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for {
				id := next.Add(1)
				wrong := id%10 == 0
				name := fmt.Sprintf("plant %d", id)
				body := fmt.Sprintf(`{"id":%d,"name":%q,"tag":"t"}`, id, name)
				if wrong {
					body = fmt.Sprintf(`{"id":%d,"name":%q,"tag":null}`, id, name)
				}
				tag := "t"
				l.mu.Lock()
				if !wrong {
					l.sent[id] = plant.Plant{Name: name, Tag: &tag}
				}
				l.mu.Unlock()
				status, err := post(p, body)
				if err != nil {
					return // cut off: the outcome is not known
				}
				l.mu.Lock()
				switch {
				case status == 200 && !wrong:
					l.acked[id] = true
				case status == 400 && wrong:
					l.refused[id] = true
				default:
					t.Errorf("plant %d, wrong %v: answered %d", id, wrong, status)
				}
				l.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func post(p *process, body string) (int, error) {
	r, err := http.NewRequest("POST", p.url+"/plants", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	response.Body.Close()
	return response.StatusCode, nil
}

// check compares the ledger with what is stored and tells every difference.
func (l *ledger) check(t *testing.T, st store.Store) (lies []string) {
	t.Helper()
	stored := map[int64]plant.Plant{}
	for after := (*int64)(nil); ; {
		page, err := st.List(t.Context(), "main", after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, p := range page {
			stored[p.ID] = p.Plant
		}
		after = &page[len(page)-1].ID
	}
	for id := range l.acked {
		if p, ok := stored[id]; !ok {
			lies = append(lies, fmt.Sprintf("plant %d was answered 200 and is lost", id))
		} else if !p.Equal(l.sent[id]) {
			lies = append(lies, fmt.Sprintf("plant %d was answered 200 and is not as sent", id))
		}
	}
	for id, p := range stored {
		switch sent, ok := l.sent[id]; {
		case l.refused[id]:
			lies = append(lies, fmt.Sprintf("plant %d was refused and is stored", id))
		case !ok:
			lies = append(lies, fmt.Sprintf("plant %d was never sent and is stored", id))
		case !p.Equal(sent):
			lies = append(lies, fmt.Sprintf("plant %d is not as sent", id))
		}
	}
	return lies
}

func openFile(t *testing.T, path string) store.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

const fixedToken = "a-fixed-token-for-tests"

func TestKill(t *testing.T) {
	t.Setenv("PLANTSTORE_TOKEN", fixedToken)
	db := filepath.Join(t.TempDir(), "plants.db")
	l, next := newLedger(), new(atomic.Int64)
	const kills = 20
	for range kills {
		p := serve(t, db)
		p.token = fixedToken
		time.AfterFunc(time.Duration(50+rand.IntN(200))*time.Millisecond, p.kill)
		l.load(t, p, 16, next)
	}
	if lies := l.check(t, openFile(t, db)); len(lies) > 0 {
		t.Errorf("%d lies, the first: %s", len(lies), lies[0])
	}
	t.Logf("%d kills: %d plants sent, %d answered 200 and all there, %d answered 400 and none there", kills, len(l.sent), len(l.acked), len(l.refused))
	if len(l.acked) < 100 || len(l.refused) < 10 {
		t.Errorf("%d plants answered 200 and %d answered 400 are too few to show anything", len(l.acked), len(l.refused))
	}
}

// The same check, on a server that answers before the commit, must find plants that are lost.
func TestKillCatchesALiar(t *testing.T) {
	t.Setenv(liarVariable, "1")
	db := filepath.Join(t.TempDir(), "plants.db")
	l, next := newLedger(), new(atomic.Int64)
	for range 3 {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		p := launch(t, exec.Command(self, db, fixedToken))
		p.waitUntilServing()
		p.token = fixedToken
		time.AfterFunc(200*time.Millisecond, p.kill)
		l.load(t, p, 16, next)
	}
	lies := l.check(t, openFile(t, db))
	t.Logf("%d of %d plants answered 200 are lost", len(lies), len(l.acked))
	if len(lies) == 0 {
		t.Error("a server that answers before the commit was not noticed")
	}
}
