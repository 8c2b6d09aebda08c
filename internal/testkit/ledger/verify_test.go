package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type compareTest struct {
	name      string
	ledger    []attempt
	stored    string // as plant 1, or "" if there is none
	violation string // "" if there is none
	lost      int
}

func compareTests() []compareTest {
	one, other, empty := encode(1, "a", nil), encode(1, "b", nil), encode(1, "", nil)
	const body = `{"name":"a"}` // of the response to one
	ack := attempt{kind: fresh, body: one, outcome: acked, response: body}
	attempts := func(all ...attempt) []attempt { return all }
	with := func(k kind, o outcome, response string) attempt {
		return attempt{kind: k, body: one, outcome: o, response: response}
	}
	takenBy := func(o outcome, response string) attempt {
		return attempt{kind: taken, body: other, outcome: o, response: response}
	}
	change := func(k kind, o outcome, response string) attempt {
		return attempt{kind: k, body: other, outcome: o, response: response}
	}
	return []compareTest{
		{"stored", attempts(ack), one, "", 0},
		{"lost", attempts(ack), "", "acknowledged and is lost", 1},
		{"changed", attempts(ack), other, "acknowledged and is stored differently", 1},
		{"a 200 without the plant", attempts(with(fresh, acked, "")), one, "got ACK", 0},
		{"a 200 with another plant", attempts(with(fresh, acked, `{"name":"b"}`)), one, "got ACK", 0},
		{"invented", nil, one, "never sent", 0},

		{"wrong and refused", attempts(with(wrong, refused, "40011")), "", "", 0},
		{"wrong and stored", attempts(with(wrong, refused, "40011")), one, "refused and is stored", 0},
		{"wrong, unknown and stored", attempts(with(wrong, unknown, none)), one, "refused and is stored", 0},
		{"wrong and acknowledged", attempts(with(wrong, acked, body)), "", "got ACK", 0},
		{"wrong, refused as taken", attempts(with(wrong, refused, "40009")), "", "got REFUSED", 0},
		{"right, refused as wrong", attempts(with(fresh, refused, "40011")), "", "got REFUSED", 0},
		{"right, refused as taken", attempts(with(fresh, refused, "40009")), "", "got REFUSED", 0},

		{"busy", attempts(with(fresh, refused, "50301")), "", "", 0},
		{"busy but stored", attempts(with(fresh, refused, "50301")), one, "refused and is stored", 0},
		{"no response and absent", attempts(with(fresh, unknown, none)), "", "", 0},
		{"no response and stored", attempts(with(fresh, unknown, none)), one, "", 0},
		{"unknown and stored", attempts(with(fresh, unknown, "50302")), one, "", 0},
		{"unknown and stored in part", attempts(with(fresh, unknown, none)), empty, "differently than it was sent", 0},
		{"an internal error", attempts(with(fresh, unknown, "50001")), "", "got UNKNOWN 50001", 0},

		{"repeated", attempts(with(fresh, unknown, none), with(again, acked, body)), one, "", 0},
		{"repeated and lost", attempts(with(fresh, unknown, none), with(again, acked, body)), "", "is lost", 1},
		{"acknowledged, then busy", attempts(ack, with(again, refused, "50301")), one, "", 0},
		{"repeated, refused as taken", attempts(ack, with(again, refused, "40009")), one, "got REFUSED", 0},
		{"taken", attempts(ack, takenBy(refused, "40009")), one, "", 0},
		{"taken but busy", attempts(ack, takenBy(refused, "50301")), one, "", 0},
		{"taken, refused as wrong", attempts(ack, takenBy(refused, "40011")), one, "got REFUSED", 0},
		{"taken over", attempts(ack, takenBy(unknown, none)), other, "stored differently", 1},
		{"taken and acknowledged", attempts(ack, takenBy(acked, `{"name":"b"}`)), one, "got ACK", 0},

		{"replaced", attempts(ack, change(edit, acked, other)), other, "", 0},
		{"replaced and back", attempts(ack, change(edit, acked, other)), one, "stored differently", 1},
		{"a 200 without the replaced plant", attempts(ack, change(edit, acked, `{"name":"b"}`)), other, "got ACK", 0},
		{"replaced though refused", attempts(ack, change(edit, refused, "50303")), other, "stored differently", 1},
		{"replaced, unknown", attempts(ack, change(edit, unknown, none)), one, "", 0},
		{"replaced, unknown, and stored", attempts(ack, change(edit, unknown, "50302")), other, "", 0},
		{"replaced, unknown, and lost", attempts(ack, change(edit, unknown, none)), "", "is lost", 1},
		{"replaced, not found", attempts(ack, change(edit, refused, "40401")), one, "got REFUSED", 0},
		{"removed", attempts(ack, change(drop, acked, "204")), "", "", 0},
		{"removed and stored", attempts(ack, change(drop, acked, "204")), one, "was removed and is stored", 1},
		{"removed though refused", attempts(ack, change(drop, refused, "50303")), "", "is lost", 1},
		{"removed, unknown", attempts(ack, change(drop, unknown, none)), one, "", 0},
		{"removed, unknown, and gone", attempts(ack, change(drop, unknown, none)), "", "", 0},
		{"removed, not found", attempts(ack, change(drop, refused, "40401")), one, "got REFUSED", 0},
		{"removed at the second try", attempts(ack, change(drop, unknown, none), change(gone, refused, "40401")), "", "", 0},
		{"removed at the second try and stored",
			attempts(ack, change(drop, unknown, none), change(gone, refused, "40401")), one, "was removed and is stored", 1},
	}
}

// Each way to break a promise is reported, and a service that keeps them all is not.
func TestCompare(t *testing.T) {
	for _, test := range compareTests() {
		t.Run(test.name, func(t *testing.T) {
			all, stored := map[int64]*attempt{}, map[int64]string{}
			for i, a := range test.ledger {
				a.n, a.id = int64(i+1), 1
				all[a.n] = &a
			}
			if test.stored != "" {
				stored[1] = test.stored
			}
			var r Report
			r.compare(all, stored)
			if want := test.violation; want == "" && len(r.Violations) > 0 ||
				want != "" && (len(r.Violations) != 1 || !strings.Contains(r.Violations[0], want)) {
				t.Errorf("violations %q, want %q", r.Violations, want)
			}
			if r.Lost != test.lost {
				t.Errorf("%d lost, want %d", r.Lost, test.lost)
			}
		})
	}
}

// ledgerWith is a ledger of attempts without outcomes, unless they have one.
func ledgerWith(t *testing.T, all ...*attempt) *ledger {
	t.Helper()
	l, err := open(filepath.Join(t.TempDir(), "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.close() })
	for _, a := range all {
		l.last++
		a.n = l.last
		if a.outcome == "" {
			a.outcome, a.response = unknown, none
		}
		l.attempts[a.n] = a
	}
	return l
}

// A verify counts the attempts since the last one, repeats the unknown ones and leaves nothing unknown.
func TestVerify(t *testing.T) {
	one, two, three := encode(1, "a", nil), encode(2, "b", nil), encode(3, "c", nil)
	f := newFake(t)
	f.plants[1], f.plants[2] = one, two
	l := ledgerWith(t,
		&attempt{kind: fresh, id: 1, body: one, outcome: acked, response: `{"name":"a"}`},
		&attempt{kind: fresh, id: 2, body: two},   // stored
		&attempt{kind: fresh, id: 3, body: three}, // absent
		&attempt{kind: wrong, id: 4, body: `{"id":4}`},
		&attempt{kind: taken, id: 1, body: encode(1, "b", nil), outcome: refused, response: "40009"},
	)
	f.responses = []fakeResponse{{status: 503, body: `{"error":50301,"message":""}`}} // to the first repetition
	r, err := verify(f.service, l, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	const want = "{Intents:5 Acks:1 Refused:1 Unknown:3 Stored:1 Absent:2 Lost:0 Violations:[]}"
	if got := fmt.Sprintf("%+v", *r); got != want {
		t.Errorf("report %s", got)
	}
	f.locked(func() {
		if f.plants[3] != three || len(f.plants) != 3 {
			t.Errorf("stored %v, want the absent plant too", f.plants)
		}
		delete(f.plants, 3)
	})
	// The next one has nothing to count, but still finds an old plant that is lost.
	l, err = open(l.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if len(l.verified) != len(l.attempts) || len(l.verified) != 4 { // the repetitions, which alone were written
		t.Errorf("%d of %d attempts are verified, want 4 of 4", len(l.verified), len(l.attempts))
	}
	r, err = verify(f.service, l, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if r.Intents != 0 || r.Lost != 1 || !strings.Contains(strings.Join(r.Violations, "\n"), "plant 3 ") {
		t.Errorf("report %+v, want plant 3 lost", *r)
	}
}

// A violation after the repetitions is found too, and an outcome that stays unknown is one.
func TestVerifyAfterRepetition(t *testing.T) {
	f := newFake(t)
	l := ledgerWith(t, &attempt{kind: fresh, id: 1, body: encode(1, "a", nil)})
	f.responses = []fakeResponse{{status: 200, body: `{"name":"a"}`}} // acknowledged and not stored
	r, err := verify(f.service, l, time.Minute)
	if err != nil || r.Lost != 1 || len(r.Violations) != 1 {
		t.Errorf("report %+v, %v, want one plant lost", r, err)
	}
	f = newFake(t)
	f.always = &fakeResponse{status: 503, body: `{"error":50302,"message":""}`}
	l = ledgerWith(t, &attempt{kind: fresh, id: 1, body: encode(1, "a", nil)})
	r, err = verify(f.service, l, time.Millisecond)
	if err != nil || len(r.Violations) != 1 || !strings.Contains(r.Violations[0], "still UNKNOWN 50302") {
		t.Errorf("report %+v, %v, want an attempt that stays unknown", r, err)
	}
}

func TestVerifyNeedsAList(t *testing.T) {
	f := newFake(t)
	for _, plants := range []fakeResponse{
		{status: 500, body: "[]"},
		{status: 200, body: `{"error":1}`},
		{status: 200, body: `[{"id":"x"}]`},
		{status: 200, body: `[{"id":1,"name":"a"},{"id":1,"name":"a"}]`},
		{status: 200, body: `[]`, header: http.Header{"Link": {"</plants>"}}},
	} {
		f.locked(func() { f.list = &plants })
		if r, err := verify(f.service, ledgerWith(t), time.Minute); err == nil {
			t.Errorf("with the list %d %s: %+v, want an error", plants.status, plants.body, r)
		}
	}
	f.locked(func() { f.list = nil })
	f.http.Close()
	if _, err := verify(f.service, ledgerWith(t), time.Minute); err == nil {
		t.Error("without a service: no error")
	}
}

func TestList(t *testing.T) {
	f := newFake(t) // It returns two plants on a page.
	want := map[int64]string{}
	for id := int64(-2); id < 3; id++ {
		want[id] = encode(id, "x", nil)
		f.plants[id] = want[id]
	}
	got, err := list(f.service)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("list = %v, %v, want %v", got, err, want)
	}
}
