package plant_test

import (
	"math"
	"strconv"
	"testing"

	"plantstore/internal/plant"
)

func TestEqual(t *testing.T) {
	for _, test := range []struct {
		p, q plant.Plant
		want bool
	}{
		{plant.Plant{Name: "a"}, plant.Plant{Name: "a"}, true},
		{plant.Plant{Name: "a"}, plant.Plant{Name: "A"}, false},
		{plant.Plant{Name: "a"}, plant.Plant{Name: "a", Tag: tag("")}, false},
		{plant.Plant{Name: "a", Tag: tag("")}, plant.Plant{Name: "a"}, false},
		{plant.Plant{Name: "a", Tag: tag("t")}, plant.Plant{Name: "a", Tag: tag("t")}, true},
		{plant.Plant{Name: "a", Tag: tag("t")}, plant.Plant{Name: "a", Tag: tag("T")}, false},
		{plant.Plant{Name: "a", Tag: tag("t")}, plant.Plant{Name: "b", Tag: tag("t")}, false},
	} {
		if got := test.p.Equal(test.q); got != test.want {
			t.Errorf("%+v.Equal(%+v) = %v", test.p, test.q, got)
		}
	}
}

func TestSize(t *testing.T) {
	for want, p := range map[int]plant.Plant{
		0: {}, 4: {Name: "é🌵"[:4]}, 2: {Name: "é"}, 5: {Name: "ab", Tag: tag("cde")}, 3: {Name: "abc", Tag: tag("")},
	} {
		if got := p.Size(); got != want {
			t.Errorf("%+v.Size() = %d, want %d", p, got, want)
		}
	}
}

func TestOutcomeString(t *testing.T) {
	for outcome, want := range map[plant.Outcome]string{
		0: "invalid outcome", plant.Created: "created", plant.Same: "same", plant.Taken: "taken", 4: "invalid outcome",
	} {
		if got := outcome.String(); got != want {
			t.Errorf("Outcome(%d).String() = %q, want %q", outcome, got, want)
		}
	}
}

func TestAppendJSON(t *testing.T) {
	p := plant.New{ID: math.MinInt64, Plant: plant.Plant{Name: "a\"<\n🌵"}}
	for want, got := range map[string][]byte{
		`{"name":"a\"<\n🌵"}`:                           p.Plant.AppendJSON(nil),
		`{"id":-9223372036854775808,"name":"a\"<\n🌵"}`: p.AppendJSON(nil),
		`x{"name":"b","tag":""}`:                       plant.Plant{Name: "b", Tag: tag("")}.AppendJSON([]byte("x")),
		`x{"id":0,"name":"","tag":"t"}`:                plant.New{Plant: plant.Plant{Tag: tag("t")}}.AppendJSON([]byte("x")),
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
	plant.Plant{Name: "\xff"}.AppendJSON(nil)
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
