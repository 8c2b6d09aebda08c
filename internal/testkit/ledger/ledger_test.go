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

// Each way to lie is noticed, and the truth is not taken for one.
func TestCompare(t *testing.T) {
	one, other := encode(1, "a", nil), encode(1, "b", nil)
	short, _ := strings.CutSuffix(one, `"a"}`)
	short += `""}`
	told := `{"name":"a"}`
	type ledger = []attempt
	for _, c := range []struct {
		name   string
		ledger ledger
		stored string // as plant 1; "" where there is none
		lie    string // "" where all is well
		lost   int
	}{
		{"all is well", ledger{{kind: fresh, body: one, outcome: acked, told: told}}, one, "", 0},
		{"a lost plant", ledger{{kind: fresh, body: one, outcome: acked, told: told}}, "", "is lost", 1},
		{"another plant", ledger{{kind: fresh, body: one, outcome: acked, told: told}}, other, "not as it was sent", 1},
		{"an empty answer", ledger{{kind: fresh, body: one, outcome: acked}}, one, "was told ACK", 0},
		{"a wrong plant", ledger{{kind: wrong, outcome: refused, told: "40011"}}, "", "", 0},
		{"a wrong plant that is stored", ledger{{kind: wrong, outcome: refused, told: "40011"}}, one, "was refused and is stored", 0},
		{"a wrong plant that is stored unseen", ledger{{kind: wrong, outcome: unknown, told: none}}, one, "was refused and is stored", 0},
		{"a wrong plant that is welcome", ledger{{kind: wrong, body: one, outcome: acked, told: told}}, "", "was told ACK", 0},
		{"a right plant that is called wrong", ledger{{kind: fresh, body: one, outcome: refused, told: "40011"}}, "", "was told REFUSED", 0},
		{"a busy service", ledger{{kind: fresh, body: one, outcome: refused, told: "50301"}}, "", "", 0},
		{"a busy service that stores", ledger{{kind: fresh, body: one, outcome: refused, told: "50301"}}, one, "was refused and is stored", 0},
		{"not known and absent", ledger{{kind: fresh, body: one, outcome: unknown, told: none}}, "", "", 0},
		{"not known and whole", ledger{{kind: fresh, body: one, outcome: unknown, told: "50302"}}, one, "", 0},
		{"not known and torn", ledger{{kind: fresh, body: one, outcome: unknown, told: none}}, short, "there in part", 0},
		{"a fault", ledger{{kind: fresh, body: one, outcome: unknown, told: "50001"}}, "", "was told UNKNOWN 50001", 0},
		{"never sent", nil, one, "was never sent", 0},
		{"a repeat", ledger{{kind: fresh, body: one, outcome: unknown, told: none}, {kind: again, body: one, outcome: acked, told: told}}, one, "", 0},
		{"a repeat that is lost", ledger{{kind: fresh, body: one, outcome: unknown, told: none}, {kind: again, body: one, outcome: acked, told: told}}, "", "is lost", 1},
		{"a taken id", ledger{{kind: fresh, body: one, outcome: acked, told: told}, {kind: taken, body: other, outcome: refused, told: "40009"}}, one, "", 0},
		{"a taken id that is given away", ledger{{kind: fresh, body: one, outcome: acked, told: told}, {kind: taken, body: other, outcome: unknown, told: none}}, other, "not as it was sent", 1},
		{"a taken id that is welcome", ledger{{kind: fresh, body: one, outcome: acked, told: told}, {kind: taken, body: other, outcome: acked, told: `{"name":"b"}`}}, one, "was told ACK", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			attempts, stored := map[int64]*attempt{}, map[int64]string{}
			for i, a := range c.ledger {
				a.n, a.id = int64(i+1), 1
				attempts[a.n] = &a
			}
			if c.stored != "" {
				stored[1] = c.stored
			}
			var r Report
			r.compare(attempts, stored)
			switch {
			case c.lie == "" && len(r.Lies) > 0, c.lie != "" && (len(r.Lies) != 1 || !strings.Contains(r.Lies[0], c.lie)):
				t.Errorf("lies %q, want %q", r.Lies, c.lie)
			case r.Lost != c.lost:
				t.Errorf("%d lost, want %d", r.Lost, c.lost)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		status  int
		body    string
		outcome outcome
		told    string
	}{
		{200, `{"name":"a"}`, acked, `{"name":"a"}`},
		{400, `{"error":40009,"message":""}`, refused, "40009"},
		{503, `{"error":50301,"message":""}`, refused, "50301"},
		{503, `{"error":50302,"message":""}`, unknown, "50302"},
		{500, `{"error":50001,"message":""}`, unknown, "50001"},
		{503, `{"error":40009,"message":""}`, unknown, "503"},
		{503, `gone`, unknown, "503"},
	} {
		if got, told := judge(c.status, []byte(c.body)); got != c.outcome || told != c.told {
			t.Errorf("judge(%d, %s) = %s %s, want %s %s", c.status, c.body, got, told, c.outcome, c.told)
		}
	}
}

// What many wrote at once is read back; a line that broke off is not.
func TestBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	b, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := range int64(100) {
		wg.Go(func() {
			a := compose(n+1, nil)
			if err := b.intend(a); err != nil {
				t.Error(err)
			}
			if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), fmt.Sprintf("INTENT %d ", a.n)) {
				t.Errorf("intent %d is not in the file: %v", a.n, err)
			}
			if a.outcome, a.told = acked, `{"name":"a b"}`; n%2 == 0 {
				a.outcome, a.told = unknown, none
			}
			if n%4 > 0 { // of the others no outcome is written
				if err := b.conclude(a); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := b.write("VERIFIED\nINTENT 101 fresh 5 {}\nACK 10"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time after what the first has cut away
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
		if b, err = open(path); err != nil {
			t.Fatal(err)
		}
		if len(b.attempts) != 101 || len(b.verified) != 100 || b.last != 101 || b.verified[101] {
			t.Fatalf("%d attempts, %d verified, the last %d", len(b.attempts), len(b.verified), b.last)
		}
		outcomes := map[outcome]int{}
		for n, a := range b.attempts {
			outcomes[a.outcome]++
			if want := compose(n, nil); n < 101 && (a.body != want.body || a.id != want.id || a.kind != want.kind) {
				t.Errorf("attempt %d is %v, want %v", n, a, want)
			}
			if a.outcome == acked && a.told != `{"name":"a b"}` {
				t.Errorf("attempt %d was told %q", n, a.told)
			}
		}
		if want := map[outcome]int{acked: 50, unknown: 51}; !maps.Equal(outcomes, want) {
			t.Errorf("outcomes %v, want %v", outcomes, want)
		}
	}
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
}
