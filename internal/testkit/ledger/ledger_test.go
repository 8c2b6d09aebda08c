package ledger

import (
	"fmt"
	"net/http"
	"testing"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/proxy"
)

// The clients send requests of every kind, go on after failures, and the ledger agrees with the service until a plant
// is lost.
func TestClients(t *testing.T) {
	f, l := newFake(t), New()
	f.responses = []fakeResponse{failure(50301), failure(50302), {}}
	closed := testkit.Target{URL: "http://" + proxy.ClosedAddress(t)}
	stop := l.Start(t, Options{Clients: 4, Edits: true, Rate: 2000}, closed, f.Target)
	l.Wait(t, 300)
	stop()
	counts := map[string]int{}
	for _, a := range l.attempts {
		counts[fmt.Sprint(a.kind, " ", a.number)]++
	}
	for _, want := range []string{
		"fresh 200", "again 200", "wrong 40011", "taken 40009", "read 200", "edit 200", "drop 204",
	} {
		if counts[want] < 4 {
			t.Errorf("%d attempts are %s, want at least 4: %v", counts[want], want, counts)
		}
	}
	all := l.Responses()
	if all[Unreachable] < 2 || all[None] != 1 || all[50301] != 1 || all[50302] != 1 || l.Failed() != 3+all[Unreachable] {
		t.Errorf("responses %v, %d failed", all, l.Failed())
	}
	if got := f.header.Get("Authorization"); got != "Bearer secret" {
		t.Errorf("a request has the credential %q", got)
	}
	l.CheckMany(t, f.Target)
	for id := range f.plants {
		delete(f.plants, id)
		break
	}
	if r, err := l.Verify(f.Target); err != nil || r.Lost != 1 || len(r.Violations) != 1 || r.Sent > 0 {
		t.Errorf("without a plant: %v %v", r, err)
	}
}

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		fakeResponse
		number  int
		outcome outcome
		wrong   bool
	}{
		{fakeResponse{status: 200, body: "{}\n"}, 200, acked, false},
		{fakeResponse{status: 201, body: "{}"}, 201, unknown, true},
		{failure(40009), 40009, refused, false},
		{failure(50301), 50301, refused, false},
		{failure(50302), 50302, unknown, false},
		{failure(50306), 50306, unknown, false},
		{fakeResponse{503, failure(40009).body, failure(40009).header}, 503, unknown, true},
		{fakeResponse{503, failure(50301).body, http.Header{"Content-Type": {"application/json"}}}, 50301, refused, true},
		{fakeResponse{503, failure(50301).body, nil}, 503, unknown, true},
		{fakeResponse{503, "gone", failure(50301).header}, 503, unknown, true},
	} {
		response := &http.Response{StatusCode: test.status, Header: test.header}
		number, received := classify(response, []byte(test.body))
		a := attempt{kind: fresh, number: number, received: received}
		if number != test.number || a.outcome() != test.outcome || test.number != 200 && test.wrong != (received != "") {
			t.Errorf("classify(%d %s) = %d %s, outcome %d", test.status, test.body, number, received, a.outcome())
		}
	}
}
