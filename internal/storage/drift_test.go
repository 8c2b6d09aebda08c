package storage_test

import (
	"slices"
	"testing"

	"plantstore/internal/storage"
)

func TestDrift(t *testing.T) {
	const name, tag, key = "plants: column name TEXT NOT NULL", "plants: column tag DEFAULT 'a: b'", "plants: key (id)"
	const noTag = "table plants lacks the column tag DEFAULT 'a: b'; add it, or restore a backup"
	for _, test := range []struct{ have, want []string }{
		{[]string{name, tag, key}, nil},
		{[]string{key, tag, "plants: column price INTEGER", "plants: key (tag)", name}, nil},
		{[]string{name}, []string{noTag, "table plants lacks the key (id); add it, or restore a backup"}},
		{[]string{name, tag, key, "plants: column price INTEGER NOT NULL"},
			[]string{"table plants has the column price INTEGER NOT NULL, which inserts do not set; drop the column"}},
		{[]string{name, key, "plants: has the trigger t NOT NULL"}, // what no table may have comes first
			[]string{"table plants has the trigger t NOT NULL", noTag}},
	} {
		if got := storage.Drift(test.have, []string{name, tag, key}); !slices.Equal(got, test.want) {
			t.Errorf("Drift(%q) = %q, want %q", test.have, got, test.want)
		}
	}
}

func TestFindings(t *testing.T) {
	var got storage.Findings
	got.Add("a", "problem", "%d is wrong", 1)
	got.Passed("a", "not added after a problem")
	got.Passed("b", "%s is right", "all")
	got.Passed("b", "not added twice")
	want := storage.Findings{{"a", "problem", "1 is wrong"}, {"b", "ok", "all is right"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
