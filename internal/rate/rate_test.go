package rate

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func limit(t *testing.T, text string, burst int64) Limit {
	t.Helper()
	l, err := Parse(text, burst)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		text  string
		burst int64
		want  Limit
	}{
		{"", 0, Limit{}},
		{"100/s", 200, Limit{100, time.Second, 200}},
		{"100/s", 0, Limit{100, time.Second, 100}},
		{"100/m", 0, Limit{100, time.Minute, 2}},
		{"1/h", 0, Limit{1, time.Hour, 1}},
		{"1000000/s", 1_000_000, Limit{1_000_000, time.Second, 1_000_000}},
	} {
		got, err := Parse(test.text, test.burst)
		if err != nil || got != test.want || got.String() != test.text {
			t.Errorf("Parse(%q, %d) = %+v as %q, %v, want %+v", test.text, test.burst, got, got, err, test.want)
		}
	}
	for _, text := range []string{
		"100", "100/", "/s", "0/s", "-1/s", "+1/s", "1.5/s", "100/d", "100/S", "100 / s", "1000001/s",
		"99999999999999999999/s", "x",
	} {
		if got, err := Parse(text, 0); err == nil || !strings.Contains(err.Error(), "100/s") {
			t.Errorf("Parse(%q) = %+v, %v", text, got, err)
		}
	}
	for _, burst := range []int64{-1, 1_000_001} {
		if got, err := Parse("1/s", burst); err == nil {
			t.Errorf("Parse with a burst of %d = %+v", burst, got)
		}
	}
	if got, err := Parse("", 5); err == nil {
		t.Errorf("Parse of a burst alone = %+v", got)
	}
}

// The burst at once, then one for each interval; after the window the burst again, and not more.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []Limit{
			limit(t, "100/s", 200), limit(t, "1/s", 1), limit(t, "3/s", 7), limit(t, "7/h", 3), limit(t, "1000000/s", 1),
		} {
			table := NewTable[string](10, time.Now)
			burst := func(what string, want int64) {
				t.Helper()
				for left := want - 1; left >= 0; left-- {
					if s := table.Take("a", l); !s.OK || s.Left != left || s.Wait <= 0 || s.Wait > l.interval() {
						t.Fatalf("%v, %s: Take() = %+v, want OK and %d left", l, what, s, left)
					}
				}
				for range 3 { // a refusal is not counted
					if s := table.Take("a", l); s.OK || s.Left != 0 || s.Wait <= 0 || s.Wait > l.interval() {
						t.Fatalf("%v, %s: Take() past the limit = %+v", l, what, s)
					}
				}
			}
			burst("at first", l.Burst)
			time.Sleep(table.Take("a", l).Wait - 1)
			if s := table.Take("a", l); s.OK {
				t.Errorf("%v: Take() before the end of the wait = %+v", l, s)
			}
			time.Sleep(time.Nanosecond)
			burst("after the wait", 1)
			time.Sleep(2 * l.interval())
			burst("after two intervals", min(2, l.Burst))
			time.Sleep(l.Window() - 1)
			if s := table.Look("a", l); s.Left != l.Burst-1 {
				t.Errorf("%v: Look() just before the end of the window = %+v", l, s)
			}
			time.Sleep(24 * time.Hour)
			if s := table.Look("a", l); !s.OK || s.Left != l.Burst || s.Wait != 0 {
				t.Errorf("%v: Look() after a day = %+v", l, s)
			}
			burst("after a day", l.Burst)
			if s := table.Take("b", l); !s.OK {
				t.Errorf("%v: Take() of another key = %+v", l, s)
			}
		}
	})
}

// What a key has used under one limit counts for another.
func TestLimitChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable[string](10, time.Now)
		slow, fast := limit(t, "1/m", 10), limit(t, "100/s", 100)
		for range 10 {
			table.Take("a", slow)
		}
		if s := table.Take("a", fast); s.OK || s.Left != 0 || s.Wait != fast.interval() {
			t.Errorf("Take() = %+v, want all of the new limit used", s)
		}
	})
}

func TestTableIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 100
		table := NewTable[int](keys, time.Now)
		l := limit(t, "1/s", 1)
		for key := range keys {
			table.Take(key, l)
		}
		time.Sleep(time.Second) // all of their limits are available again
		table.Take(keys, l)
		if n := len(table.full); n != 1 {
			t.Errorf("%d keys in the table, want the one that is in use", n)
		}
		for key := range 50 * keys {
			if s := table.Take(1000+key, l); !s.OK {
				t.Fatalf("Take() of a new key = %+v", s)
			}
			if n := len(table.full); n > keys {
				t.Fatalf("%d keys in the table, want %d at most", n, keys)
			}
		}
		if s := table.Take(1000+50*keys-1, l); s.OK {
			t.Error("the last key was dropped at once")
		}
	})
}

func TestExceeded(t *testing.T) {
	why := errors.New("too many")
	err := error(&Exceeded{why, 1001 * time.Millisecond})
	if !errors.Is(err, why) || err.Error() != "too many; retry in 2 s" {
		t.Errorf("%v", err)
	}
	for d, want := range map[time.Duration]int64{0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 59 * time.Second: 59} {
		if got := Seconds(d); got != want {
			t.Errorf("Seconds(%v) = %d, want %d", d, got, want)
		}
	}
}

func BenchmarkTake(b *testing.B) {
	table := NewTable[[32]byte](10, time.Now)
	l := Limit{1_000_000, time.Second, 1_000_000}
	b.ReportAllocs()
	for b.Loop() {
		table.Take([32]byte{1}, l)
	}
}

// A full table drops one key for a new one, and only keys in use if all are in use.
func TestEvict(t *testing.T) {
	for range 50 { // the order of a map is random
		now := time.Unix(0, 0)
		table := NewTable[string](2, func() time.Time { return now })
		short, long := limit(t, "1/s", 1), limit(t, "1/h", 1)
		table.Take("x", short)
		table.Take("y", short)
		now = now.Add(time.Second)
		table.Take("z", short) // drops x and y
		table.Take("a", long)
		now = now.Add(time.Second)
		table.Take("b", long) // drops z
		if s := table.Look("a", long); s.OK {
			t.Fatal("a key in use was dropped, want the one that is not")
		}
		table.Take("c", long)
		if a, b := table.Look("a", long), table.Look("b", long); a.OK == b.OK {
			t.Fatalf("Look() = %+v and %+v, want one of two keys dropped", a, b)
		}
	}
}
