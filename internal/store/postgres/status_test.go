package postgres

import (
	"strings"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/store/postgres/pgtest"
)

func readStatus(t *testing.T, address string) *Status {
	t.Helper()
	s, err := ReadStatus(t.Context(), address, false)
	if err != nil {
		t.Fatalf("ReadStatus(%s) = %v", address, err)
	}
	if strings.Contains(s.Database, pgtest.Password) {
		t.Errorf("ReadStatus() shows the password: %s", s.Database)
	}
	return s
}

// plantRecords returns n plants.
func plantRecords(n int) (batch []plant.Record) {
	for id := range n {
		batch = append(batch, record(id))
	}
	return batch
}

func TestReadStatus(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	s := readStatus(t, address)
	if s.Schema != 0 || s.Citus != "" || s.Version == "" || len(s.Nodes) != 1 || s.Nodes[0].Role != "server" {
		t.Errorf("ReadStatus() of an empty database = %+v", s)
	}
	if n := len(sqlQuery(t, address, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'")); n != 0 {
		t.Errorf("ReadStatus() creates %d tables", n)
	}
	create(t, openStore(t, address), plantRecords(10)...)
	s = readStatus(t, address)
	want := settings{"on", "on", "on", "UTF8"}
	if s.Schema != 3 || s.Plants != 10 || !s.PlantsExact || s.Bytes == 0 || s.Nodes[0].Settings != want ||
		s.Nodes[0].State != "ok" || s.Distribution != nil {
		t.Errorf("ReadStatus() = %+v", s)
	}
	weak := withParam(t, address, "synchronous_commit", "off")
	s, err := ReadStatus(t.Context(), weak, false)
	if err == nil || !strings.Contains(err.Error(), "runs with synchronous_commit=off") || s.Nodes[0].State != "unsafe" {
		t.Errorf("ReadStatus() of an unsafe server = %+v, %v", s, err)
	}
	// Large tables are not counted, unless the server has no estimate.
	config, err := parseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		prepare string
		exact   bool
	}{{"SELECT 1", true}, {"ANALYZE plants", false}} {
		sqlQuery(t, address, test.prepare)
		s := new(Status)
		if _, err := s.read(t.Context(), config.ConnConfig, 0); err != nil || s.PlantsExact != test.exact || s.Plants != 10 {
			t.Errorf("after %s: status = %+v, %v, want 10 plants, exact: %v", test.prepare, s, err, test.exact)
		}
	}
}
