//go:build linux

package durability

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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

// written reads a history such as "1-4 PUT b if a 200, 2-3 GET 200 a". Each operation has the time of its start and
// end, the plant that is sent, the plant that If-Match names, and the response, which is ? if it is unknown.
func written(text string) (history []porcupine.Operation) {
	for entry := range strings.SplitSeq(text, ", ") {
		var o porcupine.Operation
		words := strings.Fields(entry)
		fmt.Sscanf(words[0], "%d-%d", &o.Call, &o.Return)
		op, out := operation{kind: words[1]}, unknown
		if words = words[2:]; op.kind == "POST" || op.kind == "PUT" {
			op.plant, words = words[0], words[1:]
		}
		if words[0] == "if" {
			op.match, words = words[1], words[2:]
		}
		fmt.Sscan(strings.Join(words, " "), &out.number, &out.plant)
		o.Input, o.Output = op, out
		history = append(history, o)
	}
	return history
}

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		name, history string
		want          porcupine.CheckResult
	}{
		{"one after the other", "1-2 POST a 200, 3-4 GET 200 a, 5-6 POST a 200, 7-8 POST b 40009, 9-10 DELETE if a 204, " +
			"11-12 GET 40401", porcupine.Ok},
		{"a read during a write sees either", "1-2 POST a 200, 3-9 PUT b 200, 4-5 GET 200 a, 6-7 GET 200 b", porcupine.Ok},
		{"a read goes back", "1-2 POST a 200, 3-9 PUT b 200, 4-5 GET 200 b, 6-7 GET 200 a", porcupine.Illegal},
		{"a stale read", "1-2 POST a 200, 3-4 PUT b 200, 5-6 GET 200 a", porcupine.Illegal},
		{"two creators", "1-4 POST a 200, 2-3 POST b 200", porcupine.Illegal},
		{"taken without a create", "1-2 POST b 40009", porcupine.Illegal},
		{"a lost update", "1-2 POST a 200, 3-6 PUT b if a 200, 4-5 PUT c if a 200", porcupine.Illegal},
		{"one of two updates", "1-2 POST a 200, 3-6 PUT b if a 200, 4-5 PUT c if a 41201", porcupine.Ok},
		{"changed without a change", "1-2 POST a 200, 3-4 PUT b if a 41201", porcupine.Illegal},
		{"removed twice", "1-2 POST a 200, 3-6 DELETE 204, 4-5 DELETE 204", porcupine.Illegal},
		{"lost after the response", "1-2 POST a 200, 3-4 GET 40401", porcupine.Illegal},
		{"unknown and done", "1-9 POST a ?, 3-4 GET 200 a", porcupine.Ok},
		{"unknown and done late", "1-9 POST a ?, 3-4 GET 40401, 5-6 GET 200 a", porcupine.Ok},
		{"unknown and never done", "1-9 POST a ?, 10-11 GET 40401", porcupine.Ok},
		{"unknown, done and undone", "1-9 POST a ?, 3-4 GET 200 a, 5-6 GET 40401", porcupine.Illegal},
		{"unknown and done twice", "1-9 POST a ?, 2-3 GET 200 a, 4-5 DELETE 204, 6-7 GET 200 a", porcupine.Illegal},
		{"done after its server ended", "1-2 POST a ?, 3-4 GET 40401, 5-6 GET 200 a", porcupine.Illegal},
		{"never sent", "1-2 POST a 200, 3-4 GET 200 b", porcupine.Illegal},
	} {
		if got := verdict(written(test.history)); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
