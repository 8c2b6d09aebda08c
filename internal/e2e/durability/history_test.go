//go:build linux

package durability

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
)

// operation is a request about one id. A plant is represented by the end of its JSON, from its name on; "" is no
// plant.
type operation struct {
	id    int
	kind  string // POST, GET, PUT or DELETE
	plant string // the plant that is sent
	match string // the plant that If-Match names, or "" without If-Match
}

// outcome is the response to an operation.
type outcome struct {
	number int    // the status, or the error number
	plant  string // the plant that was read
}

// unknown is the outcome of a write that got no response, or 50302. It takes effect before the end of the operation
// in the history, or never.
var unknown = outcome{}

// plantModel is the sequential specification of one id: it has a plant, or none.
var plantModel = porcupine.NondeterministicModel{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		histories := map[int][]porcupine.Operation{}
		for _, o := range all {
			id := o.Input.(operation).id
			histories[id] = append(histories[id], o)
		}
		return slices.Collect(maps.Values(histories))
	},
	Init: func() []any { return []any{""} },
	Step: func(state, input, output any) []any {
		now, op, out := state.(string), input.(operation), output.(outcome)
		correct, next := step(now, op)
		switch {
		case out == unknown && next != now:
			return []any{now, next}
		case out == unknown || out == correct:
			return []any{next}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string {
		op, out := input.(operation), output.(outcome)
		text := fmt.Sprintf("%s %d %s", op.kind, op.id, op.plant)
		if op.match != "" {
			text += " If-Match " + op.match
		}
		if out == unknown {
			return text + " → ?"
		}
		return fmt.Sprintf("%s → %d %s", text, out.number, out.plant)
	},
}

// step is the effect of an operation on an id, and its only correct response.
func step(now string, op operation) (correct outcome, next string) {
	switch {
	case op.kind == "POST" && (now == "" || now == op.plant):
		return outcome{number: 200}, op.plant
	case op.kind == "POST":
		return outcome{number: 40009}, now
	case now == "":
		return outcome{number: 40401}, now
	case op.kind == "GET":
		return outcome{200, now}, now
	case op.match != "" && op.match != now:
		return outcome{number: 41201}, now
	case op.kind == "PUT":
		return outcome{number: 200}, op.plant
	}
	return outcome{number: 204}, "" // DELETE
}

// verdict reports whether the history is linearizable: whether an order of the operations explains every response.
func verdict(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(plantModel.ToModel(), history, checkLimit)
}

// visualize writes a page that shows where a history is not linearizable, and returns its path.
func visualize(t *testing.T, history []porcupine.Operation) (page string) {
	t.Helper()
	f, err := os.CreateTemp("", "plantstore-linear-*.html")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	model := plantModel.ToModel()
	_, info := porcupine.CheckOperationsVerbose(model, history, checkLimit)
	if err := porcupine.Visualize(model, info, f); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// verdictTest is a history made by hand: each operation has the time of its start and end.
type verdictTest struct {
	name string
	want porcupine.CheckResult
	done []porcupine.Operation
}

func verdictTests() []verdictTest {
	type history = []porcupine.Operation
	do := func(start, end int64, op operation, out outcome) porcupine.Operation {
		return porcupine.Operation{Input: op, Output: out, Call: start, Return: end}
	}
	var (
		createA, createB = operation{kind: "POST", plant: "a"}, operation{kind: "POST", plant: "b"}
		get, remove      = operation{kind: "GET"}, operation{kind: "DELETE"}
		putB             = operation{kind: "PUT", plant: "b"}
		putBoverA        = operation{kind: "PUT", plant: "b", match: "a"}
		putCoverA        = operation{kind: "PUT", plant: "c", match: "a"}
		removeA          = operation{kind: "DELETE", match: "a"}
		ok, gone         = outcome{number: 200}, outcome{number: 204}
		taken, changed   = outcome{number: 40009}, outcome{number: 41201}
		absent           = outcome{number: 40401}
		isA, isB         = outcome{200, "a"}, outcome{200, "b"}
	)
	return []verdictTest{
		{"one after the other", porcupine.Ok, history{
			do(1, 2, createA, ok), do(3, 4, get, isA), do(5, 6, createA, ok), do(7, 8, createB, taken),
			do(9, 10, removeA, gone), do(11, 12, get, absent),
		}},
		{"a read during a write sees either", porcupine.Ok, history{
			do(1, 2, createA, ok), do(3, 9, putB, ok), do(4, 5, get, isA), do(6, 7, get, isB),
		}},
		{"a read goes back", porcupine.Illegal, history{
			do(1, 2, createA, ok), do(3, 9, putB, ok), do(4, 5, get, isB), do(6, 7, get, isA),
		}},
		{"a stale read", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 4, putB, ok), do(5, 6, get, isA)}},
		{"two creators", porcupine.Illegal, history{do(1, 4, createA, ok), do(2, 3, createB, ok)}},
		{"taken without a create", porcupine.Illegal, history{do(1, 2, createB, taken)}},
		{"a lost update", porcupine.Illegal, history{
			do(1, 2, createA, ok), do(3, 6, putBoverA, ok), do(4, 5, putCoverA, ok),
		}},
		{"one of two updates", porcupine.Ok, history{
			do(1, 2, createA, ok), do(3, 6, putBoverA, ok), do(4, 5, putCoverA, changed),
		}},
		{"changed without a change", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 4, putBoverA, changed)}},
		{"removed twice", porcupine.Illegal, history{
			do(1, 2, createA, ok), do(3, 6, remove, gone), do(4, 5, remove, gone),
		}},
		{"lost after the response", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 4, get, absent)}},
		{"unknown and done", porcupine.Ok, history{do(1, 9, createA, unknown), do(3, 4, get, isA)}},
		{"unknown and done late", porcupine.Ok, history{
			do(1, 9, createA, unknown), do(3, 4, get, absent), do(5, 6, get, isA),
		}},
		{"unknown and never done", porcupine.Ok, history{do(1, 9, createA, unknown), do(10, 11, get, absent)}},
		{"unknown, done and undone", porcupine.Illegal, history{
			do(1, 9, createA, unknown), do(3, 4, get, isA), do(5, 6, get, absent),
		}},
		{"unknown and done twice", porcupine.Illegal, history{
			do(1, 9, createA, unknown), do(2, 3, get, isA), do(4, 5, remove, gone), do(6, 7, get, isA),
		}},
		{"done after its server ended", porcupine.Illegal, history{
			do(1, 2, createA, unknown), do(3, 4, get, absent), do(5, 6, get, isA),
		}},
		{"never sent", porcupine.Illegal, history{do(1, 2, createA, ok), do(3, 4, get, isB)}},
	}
}

func TestVerdict(t *testing.T) {
	for _, test := range verdictTests() {
		if got := verdict(test.done); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
