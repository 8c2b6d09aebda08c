package postgres

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
)

// startPooler starts PgBouncer in the mode in which sessions are shared. In the other one, the store works the same
// way; see e2e/replicas.
func startPooler(t *testing.T) *pgtest.Pooler {
	t.Helper()
	return pgtest.StartPooler(t, pgtest.Shared(t), "transaction")
}

func TestStorageBehindPooler(t *testing.T) {
	t.Parallel()
	pooler := startPooler(t)
	runStoragetest(t, func(t *testing.T) string { return pooler.URL(pgtest.Name(pgtest.Database(t))) })
}

// settingsOf is the list of the settings of a transaction.
const settingsOf = `SELECT string_agg(current_setting(name), ' ' ORDER BY name) FROM unnest(ARRAY['application_name',
	'client_encoding', 'client_min_messages', 'idle_in_transaction_session_timeout', 'lock_timeout', 'statement_timeout',
	'synchronous_commit', 'transaction_isolation']) AS setting (name)`

// Every write has its settings, and none of them reaches the other users of a session.
func TestSettingsBehindPooler(t *testing.T) {
	t.Parallel()
	pooler := startPooler(t)
	direct := pgtest.Database(t)
	name := pgtest.Name(direct)
	for _, set := range []string{"default_transaction_isolation = 'serializable'", "client_min_messages = 'error'",
		"lock_timeout = '1h'"} {
		sqlQuery(t, direct, "ALTER DATABASE "+name+" SET "+set)
	}
	s := openStorage(t, pooler.URL(name)+"&statement_timeout=11s")
	storagetest.Create(t, s, record(1))
	sqlQuery(t, direct, `
		CREATE TABLE seen (settings text);
		CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO seen `+settingsOf+`;
			RETURN NULL;
		END $$;
		CREATE TRIGGER see AFTER INSERT OR UPDATE ON plants FOR EACH STATEMENT EXECUTE FUNCTION see()`)
	other, err := pgx.Connect(t.Context(), pooler.URL(name)+"&application_name=x&default_query_exec_mode=simple_protocol")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	if _, err := other.Exec(t.Context(), "SET synchronous_commit = off; SET lock_timeout = '2h'"); err != nil {
		t.Fatal(err)
	}
	for what, write := range map[string]func() error{
		"CreateBatch": func() error { storagetest.Create(t, s, record(2)); return nil },
		"Replace":     func() error { return storagetest.Replace(t.Context(), s, "main", 1, record(2).Content, nil) },
		"Check":       func() error { return s.Check(t.Context()) },
	} {
		sqlQuery(t, direct, "TRUNCATE seen")
		if err := write(); err != nil {
			t.Errorf("%s = %v", what, err)
		}
		rows := sqlQuery(t, direct, "SELECT DISTINCT settings FROM seen")
		if got, want := fmt.Sprint(rows), "[[plantstore UTF8 warning 30s 3s 11s on read committed]]"; got != want {
			t.Errorf("%s: the settings are %s, want %s", what, got, want)
		}
	}
	var settings, prepared string
	err = other.QueryRow(t.Context(), settingsOf).Scan(&settings)
	if want := "x UTF8 error 0 2h 0 off serializable"; err != nil || settings != want {
		t.Errorf("the settings of another client are %s, %v, want %s", settings, err, want)
	}
	err = other.QueryRow(t.Context(), "SELECT count(*)::text FROM pg_prepared_statements").Scan(&prepared)
	if err != nil || prepared != "0" {
		t.Errorf("a session of the server has %s prepared statements, %v", prepared, err)
	}
}

// A commit that fails, or that the server warns about, is not a success.
func TestCommitFailsBehindPooler(t *testing.T) {
	t.Parallel()
	pooler := startPooler(t)
	direct := pgtest.Database(t)
	sqlQuery(t, direct, "ALTER DATABASE "+pgtest.Name(direct)+" SET client_min_messages = 'error'")
	s := openStorage(t, pooler.URL(pgtest.Name(direct)))
	storagetest.Create(t, s, record(1))
	for _, test := range []struct {
		raise string
		want  error
	}{{"EXCEPTION 'no' USING ERRCODE = '53100'", storage.ErrFull}, {"WARNING 'perhaps'", storage.ErrUnknown}} {
		sqlQuery(t, direct, `
			CREATE OR REPLACE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				RAISE `+test.raise+`; RETURN NULL;
			END $$;
			DROP TRIGGER IF EXISTS at_commit ON plants;
			CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON plants DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW EXECUTE FUNCTION at_commit()`)
		if err := storagetest.Replace(t.Context(), s, "main", 1, record(3).Content, nil); !errors.Is(err, test.want) {
			t.Errorf("Replace() with %s = %v, want %v", test.raise, err, test.want)
		}
		outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(2)})
		if test.want == storage.ErrUnknown { // the create is repeated, and finds the plant
			wantOutcomes(t, outcomes, err, plant.Same)
		} else if !errors.Is(err, test.want) {
			t.Errorf("CreateBatch() with %s = %v, want %v", test.raise, err, test.want)
		}
	}
}

// Settings and modes that do not work with a pooler are refused when the database is opened.
func TestPoolerRefuses(t *testing.T) {
	t.Parallel()
	database := pgtest.Name(pgtest.Database(t))
	address := startPooler(t).URL(database)
	wantOpenError(t, address+"&options=-c%20lock_timeout%3D1s", "unsupported startup parameter")
	wantOpenError(t, address+"&search_path=mine", "unsupported startup parameter: search_path")
	wantOpenError(t, address+"&synchronous_commit=off", "synchronous_commit=off", "--unsafe-durability")
	address = pgtest.StartPooler(t, pgtest.Shared(t), "statement").URL(database)
	wantOpenError(t, address, "statement pooling mode")
}
