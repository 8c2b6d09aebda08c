package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

type compareTest struct {
	name      string
	attempts  []attempt // about plant 1
	stored    string    // "" if it is not
	violation string    // "" if there is none
	lost      int
}

const (
	one, other = `{"id":1,"name":"a"}`, `{"id":1,"name":"b"}`
	body       = `{"name":"a"}` // of the response to one
)

func attempts(all ...attempt) []attempt { return all }

// with is an attempt with plant one.
func with(k kind, number int, received string) attempt {
	return attempt{kind: k, body: one, number: number, received: received}
}

// change is an attempt with the other plant.
func change(k kind, number int, received string) attempt {
	return attempt{kind: k, body: other, number: number, received: received}
}

func createTests() []compareTest {
	ack := with(fresh, 200, body)
	return []compareTest{
		{"stored", attempts(ack), one, "", 0},
		{"lost", attempts(ack), "", "acknowledged and is lost", 1},
		{"changed", attempts(ack), other, "acknowledged and is stored differently", 1},
		{"a 200 without the plant", attempts(with(fresh, 200, "")), one, "got 200", 0},
		{"a 200 with another plant", attempts(with(fresh, 200, `{"name":"b"}`)), one, "got 200", 0},
		{"a 204", attempts(with(fresh, 204, body)), one, "got 204", 0},
		{"invented", nil, one, "never sent", 0},
		{"read", attempts(ack, with(read, 200, one)), one, "", 0},
		{"read another", attempts(ack, with(read, 200, other)), one, "got 200", 0},
		{"read nothing", attempts(ack, with(read, notFound, "")), one, "got 40401", 0},
		{"read without response", attempts(ack, with(read, None, "")), one, "", 0},

		{"wrong and refused", attempts(with(wrong, 40011, "")), "", "", 0},
		{"wrong and stored", attempts(with(wrong, 40011, "")), one, "refused and is stored", 0},
		{"wrong, unknown and stored", attempts(with(wrong, None, "")), one, "refused and is stored", 0},
		{"wrong and acknowledged", attempts(with(wrong, 200, "")), "", "got 200", 0},
		{"wrong, refused as taken", attempts(with(wrong, 40009, "")), "", "got 40009", 0},
		{"right, refused as wrong", attempts(with(fresh, 40011, "")), "", "got 40011", 0},
		{"right, refused as taken", attempts(with(fresh, 40009, "")), "", "got 40009", 0},

		{"busy", attempts(with(fresh, 50301, "")), "", "", 0},
		{"busy without Retry-After", attempts(with(fresh, 50301, "without Retry-After")), "", "without Retry-After", 0},
		{"past its rate", attempts(with(fresh, 42901, "")), "", "", 0},
		{"past its rate but stored", attempts(with(fresh, 42901, "")), one, "refused and is stored", 0},
		{"busy but stored", attempts(with(fresh, 50301, "")), one, "refused and is stored", 0},
		{"not sent but stored", attempts(with(fresh, Unreachable, "")), one, "refused and is stored", 0},
		{"no response and absent", attempts(with(fresh, None, "")), "", "", 0},
		{"no response and stored", attempts(with(fresh, None, "")), one, "", 0},
		{"unknown and stored", attempts(with(fresh, 50302, "")), one, "", 0},
		{"unknown and stored in part", attempts(with(fresh, None, "")), encode(1, "", nil), "differently than it was", 0},
		{"an internal error", attempts(with(fresh, 50001, "")), "", "got 50001", 0},

		{"repeated", attempts(with(fresh, None, ""), with(again, 200, body)), one, "", 0},
		{"repeated and lost", attempts(with(fresh, None, ""), with(again, 200, body)), "", "is lost", 1},
		{"acknowledged, then busy", attempts(ack, with(again, 50301, "")), one, "", 0},
		{"repeated, refused as taken", attempts(ack, with(again, 40009, "")), one, "got 40009", 0},
		{"taken", attempts(ack, change(taken, 40009, "")), one, "", 0},
		{"taken but busy", attempts(ack, change(taken, 50301, "")), one, "", 0},
		{"taken, refused as wrong", attempts(ack, change(taken, 40011, "")), one, "got 40011", 0},
		{"taken over", attempts(ack, change(taken, None, "")), other, "stored differently", 1},
		{"taken and acknowledged", attempts(ack, change(taken, 200, "")), one, "got 200", 0},
	}
}

func editTests() []compareTest {
	ack := with(fresh, 200, body)
	return []compareTest{
		{"replaced", attempts(ack, change(edit, 200, other)), other, "", 0},
		{"replaced and back", attempts(ack, change(edit, 200, other)), one, "stored differently", 1},
		{"a 200 without the replaced plant", attempts(ack, change(edit, 200, `{"name":"b"}`)), other, "got 200", 0},
		{"replaced though refused", attempts(ack, change(edit, 50303, "")), other, "stored differently", 1},
		{"replaced, unknown", attempts(ack, change(edit, None, "")), one, "", 0},
		{"replaced, unknown, and stored", attempts(ack, change(edit, 50302, "")), other, "", 0},
		{"replaced, unknown, and lost", attempts(ack, change(edit, None, "")), "", "is lost", 1},
		{"replaced, not found", attempts(ack, change(edit, notFound, "")), one, "got 40401", 0},
		{"removed", attempts(ack, change(drop, 204, "")), "", "", 0},
		{"removed and stored", attempts(ack, change(drop, 204, "")), one, "was removed and is stored", 1},
		{"removed with 200", attempts(ack, change(drop, 200, "")), "", "got 200", 0},
		{"removed though refused", attempts(ack, change(drop, 50303, "")), "", "is lost", 1},
		{"removed, unknown", attempts(ack, change(drop, None, "")), one, "", 0},
		{"removed, unknown, and gone", attempts(ack, change(drop, None, "")), "", "", 0},
		{"removed, not found", attempts(ack, change(drop, notFound, "")), one, "got 40401", 0},
		{"removed at the second try", attempts(ack, change(drop, None, ""), change(gone, notFound, "")), "", "", 0},
		{"removed at the second try and stored", attempts(ack, change(drop, None, ""), change(gone, notFound, "")), one,
			"was removed and is stored", 1},
	}
}

// Each way to break a promise is reported, and a service that keeps them all is not.
func TestCompare(t *testing.T) {
	for _, test := range append(createTests(), editTests()...) {
		var all []*attempt
		for _, a := range test.attempts {
			a.id = 1
			all = append(all, &a)
		}
		stored := map[int64]string{}
		if test.stored != "" {
			stored[1] = test.stored
		}
		var r Report
		r.compare(all, stored)
		if want := test.violation; want == "" && len(r.Violations) > 0 || r.Lost != test.lost ||
			want != "" && (len(r.Violations) != 1 || !strings.Contains(r.Violations[0], want)) {
			t.Errorf("%s: %d lost, violations %q, want %d and %q", test.name, r.Lost, r.Violations, test.lost, want)
		}
	}
}

// Verify counts the attempts since the last one, repeats the unknown ones and leaves nothing unknown.
func TestVerify(t *testing.T) {
	two, three := encode(2, "b", nil), encode(3, "c", nil)
	f, l := newFake(t), New()
	f.plants[1], f.plants[2] = one, two
	l.attempts = []*attempt{
		{kind: fresh, id: 1, body: one, number: 200, received: `{"name":"a"}`},
		{kind: fresh, id: 2, body: two},   // stored
		{kind: fresh, id: 3, body: three}, // absent
		{kind: wrong, id: 4, body: `{"id":4}`},
		{kind: read, id: 1, body: one},
		{kind: taken, id: 1, body: other, number: 40009},
	}
	f.responses = []fakeResponse{failure(50301)} // to the first repetition
	r, err := l.verify(f.Target, time.Minute)
	const want = "6 sent, 1 acknowledged, 1 refused, 3 unknown (1 stored, 2 absent), 0 lost, 0 violations"
	if err != nil || r.String() != want || f.plants[3] != three || len(f.plants) != 3 {
		t.Errorf("report %v %q, %v; stored %v", r, r.Violations, err, f.plants)
	}
	delete(f.plants, 3) // The next one has nothing to count, and finds the old plant that is lost.
	r, err = l.verify(f.Target, time.Minute)
	if err != nil || r.Sent != 0 || r.Lost != 1 || !strings.Contains(fmt.Sprint(r.Violations), "plant 3 ") {
		t.Errorf("report %v %q, %v, want plant 3 lost", r, r.Violations, err)
	}

	f, l = newFake(t), New()
	l.attempts = []*attempt{{kind: fresh, id: 1, body: one}}
	f.responses = []fakeResponse{{status: 200, body: `{"name":"a"}`}} // acknowledged and not stored
	if r, err = l.verify(f.Target, time.Minute); err != nil || r.Lost != 1 || len(r.Violations) != 1 {
		t.Errorf("report %v %q, %v, want a plant lost after its repetition", r, r.Violations, err)
	}
	f, l = newFake(t), New()
	l.attempts = []*attempt{{kind: fresh, id: 1, body: one}}
	f.always = new(failure(50302))
	r, err = l.verify(f.Target, time.Millisecond)
	if err != nil || len(r.Violations) != 1 || !strings.Contains(r.Violations[0], "still 50302") {
		t.Errorf("report %v %q, %v, want an attempt that stays unknown", r, r.Violations, err)
	}
}

// A copy has what was acknowledged before the mark, and may have what was sent later.
func TestMark(t *testing.T) {
	f, l := newFake(t), New()
	l.Create(f.Target, 1, "a")
	verify := l.Mark()
	l.Create(f.Target, 2, "b")
	l.Replace(f.Target, 1, "c")
	for stored, want := range map[string]int{one: 0, encode(1, "c", nil): 0, other: 1, "": 1} {
		if f.plants = map[int64]string{1: stored}; stored == "" {
			delete(f.plants, 1)
		}
		if r, err := verify(f.Target); err != nil || len(r.Violations) != want {
			t.Errorf("a copy with %q: %q, %v, want %d violations", stored, r.Violations, err, want)
		}
	}
}
