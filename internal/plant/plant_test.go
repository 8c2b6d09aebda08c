package plant_test

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"plantstore/internal/plant"
)

func TestEqual(t *testing.T) {
	for _, test := range []struct {
		p, q plant.Content
		want bool
	}{
		{plant.Content{Name: "a"}, plant.Content{Name: "a"}, true},
		{plant.Content{Name: "a"}, plant.Content{Name: "A"}, false},
		{plant.Content{Name: "a"}, plant.Content{Name: "a", Tag: tag("")}, false},
		{plant.Content{Name: "a", Tag: tag("")}, plant.Content{Name: "a"}, false},
		{plant.Content{Name: "a", Tag: tag("t")}, plant.Content{Name: "a", Tag: tag("t")}, true},
		{plant.Content{Name: "a", Tag: tag("t")}, plant.Content{Name: "a", Tag: tag("T")}, false},
		{plant.Content{Name: "a", Tag: tag("t")}, plant.Content{Name: "b", Tag: tag("t")}, false},
	} {
		if got := test.p.Equal(test.q); got != test.want {
			t.Errorf("%+v.Equal(%+v) = %v", test.p, test.q, got)
		}
	}
}

func TestSize(t *testing.T) {
	for want, p := range map[int]plant.Content{
		0: {}, 4: {Name: "é🌵"[:4]}, 2: {Name: "é"}, 5: {Name: "ab", Tag: tag("cde")}, 3: {Name: "abc", Tag: tag("")},
	} {
		if got := p.Size(); got != want {
			t.Errorf("%+v.Size() = %d, want %d", p, got, want)
		}
	}
}

func TestOutcome(t *testing.T) {
	for outcome, want := range map[plant.Outcome]struct {
		text string
		err  error
	}{
		plant.Created: {"created", nil}, plant.Same: {"same", nil}, plant.Taken: {"taken", plant.ErrTaken},
		plant.Replaced: {"replaced", nil}, plant.Removed: {"removed", nil}, plant.Absent: {"absent", plant.ErrNotFound},
		plant.Changed: {"changed", plant.ErrChanged},
	} {
		if text, err := outcome.String(), outcome.Err(); text != want.text || err != want.err {
			t.Errorf("Outcome(%d) is %q with the error %v, want %q and %v", outcome, text, err, want.text, want.err)
		}
	}
	var none plant.Outcome
	if text, err := none.String(), none.Err(); text != "invalid outcome" || err == nil {
		t.Errorf("no outcome is %q with the error %v", text, err)
	}
}

func TestByKey(t *testing.T) {
	key := func(store string, id int64) plant.Edit { return plant.Edit{Key: plant.Key{Store: store, ID: id}} }
	edits := []plant.Edit{key("b", -1), key("a", 2), key("a", 1), key("a", 2), key("b", -2), key("a", 2)}
	got := plant.ByKey(edits, func(e *plant.Edit) plant.Key { return e.Key })
	if want := []int{2, 1, 3, 5, 4, 0}; !slices.Equal(got, want) {
		t.Errorf("ByKey() = %v, want %v", got, want)
	}
}

func TestAppendJSON(t *testing.T) {
	p := plant.Plant{ID: math.MinInt64, Content: plant.Content{Name: "a\"<\n🌵"}}
	unnamed := plant.Plant{Content: plant.Content{Tag: tag("t")}}
	for want, got := range map[string][]byte{
		`{"name":"a\"<\n🌵"}`:                           p.Content.AppendJSON(nil),
		`{"id":-9223372036854775808,"name":"a\"<\n🌵"}`: p.AppendJSON(nil),
		`x{"name":"b","tag":""}`:                       plant.Content{Name: "b", Tag: tag("")}.AppendJSON([]byte("x")),
		`x{"id":0,"name":"","tag":"t"}`:                unnamed.AppendJSON([]byte("x")),
	} {
		if string(got) != want {
			t.Errorf("AppendJSON() = %s, want %s", got, want)
		}
	}
}

func TestAppendJSONPanicsOnInvalidText(t *testing.T) {
	defer func() {
		if got, want := recover(), `plant: not UTF-8: "\xff"`; got != want {
			t.Errorf("recover() = %v, want %v", got, want)
		}
	}()
	plant.Content{Name: "\xff"}.AppendJSON(nil)
}

func TestParseID(t *testing.T) {
	for _, want := range []int64{0, 1, -1, 10, math.MaxInt64, math.MinInt64} {
		if got, err := plant.ParseID(strconv.FormatInt(want, 10)); err != nil || got != want {
			t.Errorf("ParseID(%d) = %d, %v", want, got, err)
		}
	}
	const want = "must be an integer from -9223372036854775808 to 9223372036854775807, " +
		"without a plus sign or leading zeros"
	for _, text := range []string{
		"", "+1", "01", "-0", "00", " 1", "1 ", "1.0", "1e2", "0x1", "1_0", "x",
		"9223372036854775808", "-9223372036854775809",
	} {
		got, err := plant.ParseID(text)
		if err == nil || err.Error() != want || got != 0 {
			t.Errorf("ParseID(%q) = %d, %v", text, got, err)
		}
	}
}
