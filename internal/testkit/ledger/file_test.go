package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Concurrent writes are read back. An incomplete last line is not.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	writeAttempts(t, l, path)
	if err := l.write("VERIFIED\nINTENT 101 fresh 5 {}\nREFUSED 1 50301\nACK 10"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // The first open truncates the file.
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		if l, err = open(path); err != nil {
			t.Fatal(err)
		}
		if len(l.attempts) != 101 || len(l.verified) != 100 || l.last != 101 || l.verified[101] {
			t.Fatalf("%d attempts, %d verified, the last is %d", len(l.attempts), len(l.verified), l.last)
		}
		outcomes := map[outcome]int{}
		for n, a := range l.attempts {
			outcomes[a.outcome]++
			if want := compose(n, nil, false); n < 101 && (a.body != want.body || a.id != want.id || a.kind != want.kind) {
				t.Errorf("attempt %d is %v, want %v", n, a, want)
			}
			want := map[outcome]string{acked: `{"name":"a b"}`, unknown: none, refused: "50301"}[a.outcome]
			if a.response != want {
				t.Errorf("attempt %d has the response %q, want %q", n, a.response, want)
			}
		}
		if want := map[outcome]int{acked: 50, unknown: 50, refused: 1}; !maps.Equal(outcomes, want) {
			t.Errorf("outcomes %v, want %v", outcomes, want)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if err := l.write("VERIFIED\n"); err == nil {
		t.Error("a write to a closed file succeeds")
	}
}

// writeAttempts writes a hundred attempts at the same time, three quarters of them with an outcome.
func writeAttempts(t *testing.T, l *ledger, path string) {
	t.Helper()
	var wg sync.WaitGroup
	for n := range int64(100) {
		wg.Go(func() {
			a := compose(n+1, nil, false)
			if err := l.writeIntent(a); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), fmt.Sprintf("INTENT %d ", a.n)) {
				t.Errorf("intent %d is not in the file: %v", a.n, err)
			}
			if a.outcome, a.response = acked, `{"name":"a b"}`; n%2 == 0 {
				a.outcome, a.response = unknown, none
			}
			if n%4 > 0 { // The others have no outcome in the file.
				if err := l.writeOutcome(a); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestFileIsInvalid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	for _, text := range []string{
		"INTENT x fresh 1 {}", "INTENT 1 fresh 1", "ACK x {}", "ACK 1 {}", "UNKNOWN", "PERHAPS 1 {}", "",
	} {
		if err := os.WriteFile(path, []byte("VERIFIED\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := open(path); err == nil {
			t.Errorf("a ledger with the line %q is opened", text)
		}
	}
}
