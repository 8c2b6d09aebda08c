package postgres

import (
	"strings"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/store/postgres/pgtest"
)

// findings returns the findings of Diagnose as lines.
func findings(t *testing.T, address string) (lines string) {
	t.Helper()
	for _, f := range Diagnose(t.Context(), address, nil) {
		lines += f.Check + " " + f.Level + ": " + f.Text + "\n"
	}
	if strings.Contains(lines, pgtest.Password) {
		t.Errorf("Diagnose() shows the password: %s", lines)
	}
	return lines
}

// plantRecords returns n plants.
func plantRecords(n int) (batch []plant.Record) {
	for id := range n {
		batch = append(batch, record(id))
	}
	return batch
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	wantFindings(t, findings(t, address), "schema warning: there are no tables", "privileges ok: ",
		"durability ok: the server: ", "server ok: PostgreSQL ")
	if n := len(sqlQuery(t, address, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'")); n != 0 {
		t.Errorf("Diagnose() creates %d tables", n)
	}
	create(t, openStore(t, address), plantRecords(1)...)
	lines := findings(t, address)
	wantFindings(t, lines, "connection ok: postgres://", "clock ok: ", "privileges ok: ", "durability ok: the server: ",
		"schema ok: ", "contents ok: 1 plants in 0.0 MiB, 0 tokens")
	if strings.Contains(lines, "problem") || strings.Contains(lines, "warning") {
		t.Errorf("Diagnose() = %s", lines)
	}
	wantFindings(t, findings(t, address+"&synchronous_commit=off"),
		"durability problem: the server runs with synchronous_commit=off", "set it to on")
	reader, _ := grant(t, address, "GRANT SELECT ON plants, tokens, plantstore_schema TO USER")
	wantFindings(t, findings(t, reader),
		"privileges problem: the user lacks INSERT ON plants, UPDATE ON plants, DELETE ON plants, INSERT ON tokens, ")
	sqlQuery(t, address, "INSERT INTO plantstore_schema (version) VALUES (99)")
	wantFindings(t, findings(t, address), "schema problem: version 99 is newer than this program; start the newer program")
	wantFindings(t, findings(t, "postgres://u:x@127.0.0.1:1/d"), "connection problem: ")
}

func wantFindings(t *testing.T, lines string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(lines, want) {
			t.Errorf("Diagnose() = %s\nwant %q", lines, want)
		}
	}
}
