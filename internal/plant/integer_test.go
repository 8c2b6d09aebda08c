package plant

import "testing"

func TestParseInt64(t *testing.T) {
	for _, test := range []struct {
		literal string
		want    int64
		reason  Reason
	}{
		{"0", 0, 0},
		{"-0.0e5", 0, 0},
		{"1000000000000000000", 1e18, 0},
		{"1e18", 1e18, 0},
		{"-9e18", -9e18, 0},
		{"1e19", 0, OutOfRange},
		{"10e18", 0, OutOfRange},
		{"0.1e19", 1e18, 0},
		{"9223372036854775.807e3", 9223372036854775807, 0},
		{"9223372036854775.808e3", 0, OutOfRange},
		{"-9223372036854775.808e3", -9223372036854775808, 0},
		{"-9223372036854775.809e3", 0, OutOfRange},
		{"12345678901234567890e-1", 1234567890123456789, 0},
		{"100e-2", 1, 0},
		{"100e-3", 0, NotInteger},
		{"1.5", 0, NotInteger},
		{"-1.50e0", 0, NotInteger},
		{"1e-1099511627776", 0, NotInteger},
		{"1e1099511627777", 0, OutOfRange},
		{"1e9223372036854775808", 0, OutOfRange},
		{"1e-9223372036854775809", 0, NotInteger},
	} {
		if got, reason := parseInt64([]byte(test.literal)); got != test.want || reason != test.reason {
			t.Errorf("parseInt64(%s) = %d, %d, want %d, %d", test.literal, got, reason, test.want, test.reason)
		}
	}
}
