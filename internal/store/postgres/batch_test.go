package postgres

import (
	"encoding/binary"
	"slices"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/store/storetest"
)

func TestBatchOrder(t *testing.T) {
	b := newBatch([]plant.Record{
		storetest.Record("b", 2, "", ""), storetest.Record("b", 1, "", ""), storetest.Record("a", 9, "", ""),
		storetest.Record("b", 2, "", ""), storetest.Record("b", 1, "", ""),
	})
	defer b.free()
	if want := []int{2, 1, 4, 0, 3}; !slices.Equal(b.order, want) {
		t.Errorf("order = %v, want %v", b.order, want)
	}
	if want := []int{2, 1, 0}; !slices.Equal(b.firsts, want) {
		t.Errorf("firsts = %v, want %v", b.firsts, want)
	}
	for _, test := range []struct {
		store string
		id    int64
		first int
		ok    bool
	}{
		{"a", 9, 2, true}, {"b", 1, 1, true}, {"b", 2, 0, true},
		{"a", 1, 0, false}, {"b", 3, 0, false}, {"c", 1, 0, false}, {"", 9, 0, false},
	} {
		id := binary.BigEndian.AppendUint64(nil, uint64(test.id))
		if first, ok := b.find([]byte(test.store), id); first != test.first || ok != test.ok {
			t.Errorf("find(%s, %d) = %d, %v, want %d, %v", test.store, test.id, first, ok, test.first, test.ok)
		}
	}
}

func TestWithoutOutcome(t *testing.T) {
	outcomes := []plant.Outcome{plant.Created, 0, plant.Same, 0, plant.Taken}
	firsts := []int{4, 3, 2, 1, 0}
	if got, want := withoutOutcome(firsts, outcomes), []int{3, 1}; !slices.Equal(got, want) {
		t.Errorf("withoutOutcome() = %v, want %v", got, want)
	}
	if want := []int{4, 3, 2, 1, 0}; !slices.Equal(firsts, want) {
		t.Errorf("withoutOutcome() changed its argument to %v", firsts)
	}
}

// Large buffers are not kept for the next batch.
func TestBatchFree(t *testing.T) {
	b := new(batch)
	b.records = make([]plant.Record, 1)
	b.existing = map[int]plant.Plant{}
	b.columns[0], b.columns[1] = make([]byte, 0, 1<<20), make([]byte, 0, 1<<20+1)
	b.free()
	if b.columns[0] == nil || b.columns[1] != nil || b.records != nil || b.existing != nil {
		t.Errorf("buffers of %d and %d bytes are kept, want the smaller one", cap(b.columns[0]), cap(b.columns[1]))
	}
}

// With tags, without tags and with both the arrays have PostgreSQL's binary format.
func TestEncode(t *testing.T) {
	b := newBatch([]plant.Record{
		storetest.Record("s", 1, "n", "t"),
		{Store: "s", New: plant.New{ID: 2, Plant: plant.Plant{Name: "n"}}},
	})
	defer b.free()
	for _, test := range []struct {
		firsts []int
		want   string
	}{
		{nil, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x19"},
		{[]int{0}, "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x19\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01t"},
		{[]int{1}, "\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x19\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff"},
		{[]int{0, 1}, "\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x19\x00\x00\x00\x02\x00\x00\x00\x01" +
			"\x00\x00\x00\x01t\xff\xff\xff\xff"},
	} {
		b.encode(test.firsts)
		if got := string(b.columns[3]); got != test.want {
			t.Errorf("encode(%v): tags = %q, want %q", test.firsts, got, test.want)
		}
	}
}
