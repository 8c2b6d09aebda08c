package commit

import "testing"

func TestPolicyStarts(t *testing.T) {
	one := policy{Lanes: 1, Batch: 512, Large: 16}
	four := policy{Lanes: 4, Batch: 512, Large: 16}
	for _, test := range []struct {
		name    string
		policy  policy
		state   state
		plants  int
		overdue bool
		want    bool
	}{
		{"nothing is waiting", one, state{}, 0, false, false},
		{"one plant, free lanes", one, state{waiting: 1}, 1, false, true},

		{"fewer than expected", one, state{waiting: 11, expected: 12}, 11, false, false},
		{"as many as expected", one, state{waiting: 12, expected: 12}, 12, false, true},
		{"more than expected", one, state{waiting: 13, expected: 12}, 13, false, true},
		{"fewer than expected while closing", one, state{waiting: 1, expected: 12, closed: true}, 1, false, true},

		{"not large while another lane is busy", four, state{waiting: 15, active: 1, inFlight: 1}, 15, false, false},
		{"a large batch while another lane is busy", four, state{waiting: 16, active: 1, inFlight: 1}, 16, false, true},
		{"less than the average in flight", four, state{waiting: 39, active: 2, inFlight: 80}, 39, false, false},
		{"the average in flight", four, state{waiting: 40, active: 2, inFlight: 80}, 40, false, true},
		{"the average in flight, rounded down", four, state{waiting: 40, active: 2, inFlight: 81}, 40, false, true},
		{"the average of one lane", four, state{waiting: 79, active: 1, inFlight: 80}, 79, false, false},
		{"a large batch while another is full", four, state{waiting: 511, active: 1, inFlight: 512}, 511, false, false},
		{"a full batch while another is full", four, state{waiting: 512, active: 1, inFlight: 512}, 512, false, true},
		{"expected does not count then", four, state{waiting: 16, active: 1, inFlight: 1, expected: 17}, 16, false, true},

		{"overdue while another lane is busy", four, state{waiting: 1, active: 3, inFlight: 300}, 1, true, true},
		{"overdue with nothing waiting", four, state{active: 1, inFlight: 1}, 0, true, false},
		{"closing while another lane is busy", four, state{waiting: 1, active: 1, inFlight: 1, closed: true}, 1, false, true},
		{"its share of all plants", four, state{shards: 8, waiting: 50, active: 1, inFlight: 6}, 7, false, true},
		{"less than its share", four, state{shards: 8, waiting: 50, active: 1, inFlight: 6}, 6, false, false},
		{"a share below the average", four, state{shards: 8, waiting: 40, active: 1, inFlight: 16}, 8, false, false},
		{"a large batch that is less than its share", four, state{shards: 2, waiting: 100, active: 1}, 16, false, true},

		{"closing with nothing waiting", four, state{closed: true}, 0, false, false},
	} {
		if got := test.policy.starts(test.state, test.plants, test.overdue); got != test.want {
			t.Errorf("%s: %+v starts = %v, want %v", test.name, test, got, test.want)
		}
	}
}

func TestPolicyExpects(t *testing.T) {
	one := policy{Lanes: 1, Batch: 512, Large: 16}
	two := policy{Lanes: 2, Batch: 512, Large: 16}
	small := policy{Lanes: 1, Batch: 16, Large: 16}
	for _, test := range []struct {
		name    string
		policy  policy
		n, want int
	}{
		{"a batch of one", one, 1, 0},
		{"just not large", one, 15, 0},
		{"large", one, 16, 12},
		{"three quarters, rounded down", one, 19, 14},
		{"just not full", one, 511, 383},
		{"full", one, 512, 0},
		{"two lanes", two, 16, 0},
		{"full as soon as it is large", small, 16, 0},
	} {
		if got := test.policy.expect(test.n); got != test.want {
			t.Errorf("%s: expect(%d) = %d, want %d", test.name, test.n, got, test.want)
		}
	}
}

func TestPolicyYields(t *testing.T) {
	for last, want := range map[int]bool{0: true, 1: false, 2: true} {
		if got := (policy{}).yields(last); got != want {
			t.Errorf("yields(%d) = %v, want %v", last, got, want)
		}
	}
}
