package postgres

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/storetest"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // most of the time the tests wait
	os.Exit(pgtest.Main(m))
}

func TestStore(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	databases := map[*testing.T]string{}
	storetest.Run(t, func(t *testing.T) store.Store {
		mu.Lock()
		defer mu.Unlock()
		if databases[t] == "" {
			databases[t] = pgtest.Database(t)
		}
		return opened(t, databases[t])
	})
}

// opened opens a database. A store that the test has not closed is closed with it.
func opened(t testing.TB, address string) *Store {
	t.Helper()
	s, err := Open(t.Context(), address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func create(t testing.TB, s *Store, records ...plant.Record) []plant.Outcome {
	t.Helper()
	outcomes, err := s.CreateBatch(t.Context(), records)
	if err != nil {
		t.Fatalf("CreateBatch(%d plants) = %v", len(records), err)
	}
	return outcomes
}

func record(id int) plant.Record {
	return storetest.Record("main", int64(id), fmt.Sprint("plant ", id), "-")
}

// edited is address with another password, database, or other settings.
func edited(t *testing.T, address string, edit func(u *url.URL, settings url.Values)) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	settings := u.Query()
	edit(u, settings)
	u.RawQuery = strings.ReplaceAll(settings.Encode(), "+", "%20") // PostgreSQL knows no + for a space
	return u.String()
}

// silentAddress is one that nobody listens at, and that nobody else can begin to listen at during the test:
// a socket has it and does not listen.
func silentAddress(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", address.(*syscall.SockaddrInet4).Port)
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	there := pgtest.Database(t)
	with := func(edit func(u *url.URL, settings url.Values)) string { return edited(t, there, edit) }
	setting := func(name, value string) string {
		return with(func(_ *url.URL, settings url.Values) { settings.Set(name, value) })
	}
	closedPort := func(u *url.URL, _ url.Values) { u.Host = silentAddress(t) }
	tests := []struct{ name, address, want string }{
		{"no URL", "plants.db", "expected postgres://"},
		{"another engine", "mysql://root:not-to-be-seen@127.0.0.1/plants", "expected postgres://"},
		{"a password that is not escaped", "postgres://user:not-to-be-seen%zz@127.0.0.1/plants", "can't be read"},
		{"a password that begins with a slash", "postgres://user:/not-to-be-seen@127.0.0.1:x/plants", "can't be read"},
		{"a password with a slash", "postgres://user:not-to-be-seen/not-to-be-seen@127.0.0.1/plants", "can't be read"},
		{"a password with a question mark", "postgres://user:/?not-to-be-seen@127.0.0.1=/plants", "can't be read"},
		{"a password with an at sign", "postgres://user:x@not-to-be-seen@127.0.0.1/plants", "can't be read"},
		{"a password with a number sign", "postgres://user:x#not-to-be-seen@127.0.0.1/plants", "can't be read"},
		{"a setting with a wrong value", setting("pool_max_conns", "many"), "can't be read"},
		{"a mode of TLS that is none", setting("sslmode", "maybe"), "can't be read"},
		{"a file that is not there", setting("sslmode", "verify-full") + "&sslrootcert=/not/there", "can't be read"},
		{"TLS where the server has none", setting("sslmode", "require"), "refused TLS"},
		{"nothing listens", with(closedPort), "no server listens"},
		{"no socket", "postgres://postgres:not-to-be-seen@/plants?host=/not/there", "no server listens"},
		{"no such host", "postgres://postgres:not-to-be-seen@host..invalid/plants", "can't be resolved"}, // no name at all: nobody is asked for it
		{"a wrong password", with(func(u *url.URL, _ url.Values) { u.User = url.UserPassword(pgtest.User, "not-to-be-seen-either") }), "refuses the user or the password"},
		{"a user that is not there", with(func(u *url.URL, _ url.Values) { u.User = url.UserPassword("stranger", pgtest.Password) }), "refuses the user or the password"},
		{"a database that is not there", with(func(u *url.URL, _ url.Values) { u.Path = "/nowhere" }), "no database of this name"},
		{"a setting that the server does not know", setting("no_such_setting", "1"), "no_such_setting"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := Open(t.Context(), test.address, Options{})
			if err == nil {
				s.Close()
				t.Fatal("Open() = nil")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("Open() = %v, want it to say %q", err, test.want)
			}
			for _, form := range []string{"%v", "%+v", "%#v"} {
				if text := fmt.Sprintf(form, err); strings.Contains(text, "not-to-be-seen") {
					t.Errorf("Open() shows the password: %s", text)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("Open() = %q, want one line", err)
			}
			if !strings.HasPrefix(err.Error(), "open the database") {
				t.Errorf("Open() = %v, want it to begin with what failed", err)
			}
		})
	}
}

func TestUnsafeServersAreRefused(t *testing.T) {
	for setting, value := range map[string]string{"fsync": "off", "full_page_writes": "off"} {
		t.Run(setting+"="+value, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, map[string]string{setting: value})
			wantRefusal(t, server.Database(t), setting+"="+value)
		})
	}
	for _, value := range []string{"off", "local", "remote_write"} {
		t.Run("synchronous_commit="+value, func(t *testing.T) {
			address := pgtest.Database(t)
			wantRefusal(t, edited(t, address, func(_ *url.URL, settings url.Values) { settings.Set("synchronous_commit", value) }), "synchronous_commit="+value)
		})
	}
	t.Run("synchronous_commit=remote_apply", func(t *testing.T) {
		opened(t, edited(t, pgtest.Database(t), func(_ *url.URL, settings url.Values) { settings.Set("synchronous_commit", "remote_apply") }))
	})
}

func wantRefusal(t *testing.T, address, setting string) {
	t.Helper()
	s, err := Open(t.Context(), address, Options{})
	if err == nil {
		s.Close()
		t.Fatalf("Open() with %s = nil", setting)
	}
	for _, want := range []string{setting, "--unsafe-durability", "loss"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Open() with %s = %v, want it to say %q", setting, err, want)
		}
	}
	s, err = Open(t.Context(), address, Options{UnsafeDurability: true})
	if err != nil {
		t.Fatalf("Open() with %s and UnsafeDurability = %v", setting, err)
	}
	s.Close()
}

// reload changes a setting of a running server, or takes the change back where the value is "", and returns
// when a new session has it. By then every session that is open has been told: it has the setting from its
// next statement on.
func reload(t *testing.T, server *pgtest.Server, setting, value string) {
	t.Helper()
	change := "RESET " + setting
	if value != "" {
		change = "SET " + setting + " = '" + value + "'"
	}
	had := server.Query(t, "postgres", "SHOW "+setting)[0][0]
	server.Exec(t, "ALTER SYSTEM "+change)
	server.Exec(t, "SELECT pg_reload_conf()")
	eventually(t, setting+" is changed", func() bool {
		return server.Query(t, "postgres", "SHOW "+setting)[0][0] != had
	})
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 20s: %s", what)
		}
	}
}

// A server that is made unsafe while the service runs: a session keeps what it was checked with,
// and no new session is made.
func TestServerMadeUnsafeLater(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	s := opened(t, server.Database(t))
	reload(t, server, "synchronous_commit", "off")
	conn, err := s.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var value string
	if err := conn.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&value); err != nil || value != "on" {
		t.Errorf("synchronous_commit of a checked session = %s, %v, want on", value, err)
	}
	// A new session is refused, and those that were checked serve as before.
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "synchronous_commit=off") {
		t.Errorf("Check() on a new session = %v, want synchronous_commit=off", err)
	}
	conn.Release()
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check() on a checked session = %v", err)
	}
	create(t, s, record(1))
	s.pool.Reset()
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "synchronous_commit=off") {
		t.Errorf("Check() on a new session = %v, want synchronous_commit=off", err)
	}
	if _, err := s.CreateBatch(t.Context(), []plant.Record{record(2)}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("CreateBatch() on a new session = %v, want %v", err, store.ErrUnavailable)
	}
	reload(t, server, "synchronous_commit", "")
	create(t, s, record(2))
}

// A setting that holds for all sessions at once: whoever notices it first, readiness on a session that is
// open or anybody on a new one, ends the sessions that are open, so that nothing more is confirmed.
func TestServerMadeUnsafeForAllSessions(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	s := opened(t, server.Database(t))
	for i, setting := range []string{"fsync", "full_page_writes", "fsync"} {
		useAll(t, s)
		id := 10 * i
		create(t, s, record(id))
		reload(t, server, setting, "off")
		if i < 2 {
			if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), setting+"=off") {
				t.Errorf("Check() = %v, want %s=off", err, setting)
			}
		} else {
			noticeOnANewSession(t, s)
		}
		for i := range 2 * defaultConns { // whichever session it would be
			if _, err := s.CreateBatch(t.Context(), []plant.Record{record(id + 1)}); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("CreateBatch() number %d with %s=off = %v, want %v", i, setting, err, store.ErrUnavailable)
			}
		}
		reload(t, server, setting, "")
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check() with %s=on again = %v", setting, err)
		}
		create(t, s, record(id+1))
	}
}

// noticeOnANewSession needs one session more than are open, and gives the others back when it was refused.
func noticeOnANewSession(t *testing.T, s *Store) {
	t.Helper()
	for range defaultConns + 1 {
		conn, err := s.acquire(t.Context())
		if err != nil {
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("acquire() = %v, want %v", err, store.ErrUnavailable)
			}
			return
		}
		defer conn.Release()
	}
	t.Error("no session was new: nothing was tested")
}

func TestEncodingMustHoldEveryText(t *testing.T) {
	server := pgtest.Shared(t)
	server.Exec(t, "DROP DATABASE IF EXISTS latin")
	server.Exec(t, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
	if s, err := Open(t.Context(), server.URL("latin"), Options{}); err == nil || !strings.Contains(err.Error(), "LATIN1") {
		if err == nil {
			s.Close()
		}
		t.Errorf("Open() of a LATIN1 database = %v, want a refusal", err)
	}
}

func TestCheckFindsAReadOnlyDatabase(t *testing.T) {
	server := pgtest.Shared(t)
	address := pgtest.Database(t)
	s := opened(t, address)
	u, _ := url.Parse(address)
	server.Exec(t, fmt.Sprintf("ALTER DATABASE %s SET default_transaction_read_only = on", u.Path[1:]))
	s.pool.Reset()
	err := s.Check(t.Context())
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "read only") {
		t.Errorf("Check() = %v, want read only", err)
	}
	if _, err := s.CreateBatch(t.Context(), []plant.Record{record(1)}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("CreateBatch() = %v, want %v", err, store.ErrUnavailable)
	}
	server.Exec(t, fmt.Sprintf("ALTER DATABASE %s RESET default_transaction_read_only", u.Path[1:]))
	// The refusal has closed the session, as a failover asks for: the next one is fine.
	create(t, s, record(1))
}

func TestPool(t *testing.T) {
	t.Parallel()
	for conns, want := range map[string]int{"": 4, "1": 1, "2": 1, "6": 3, "100": 4} {
		address := pgtest.Database(t)
		if conns != "" {
			address += "&pool_max_conns=" + conns
		}
		s := opened(t, address)
		if got := s.Lanes(); got != want {
			t.Errorf("Lanes() with pool_max_conns=%s = %d, want %d", conns, got, want)
		}
		var wg sync.WaitGroup
		for i := range 40 { // many more than there are connections
			wg.Go(func() {
				if _, err := s.CreateBatch(t.Context(), []plant.Record{record(i)}); err != nil {
					t.Errorf("CreateBatch() = %v", err)
				}
				if _, err := s.Get(t.Context(), "main", int64(i)); err != nil {
					t.Errorf("Get() = %v", err)
				}
			})
		}
		wg.Wait()
		limit := 8
		if conns != "" {
			fmt.Sscan(conns, &limit)
		}
		if n := int(s.pool.Stat().TotalConns()); n > limit {
			t.Errorf("%d connections with pool_max_conns=%s", n, conns)
		}
		s.Close()
	}
}

// The session has limits of its own, so that a lost client leaves no lock behind; the URL's come first.
func TestSessionSettings(t *testing.T) {
	show := func(address, name string) (value string) {
		s := opened(t, address)
		defer s.Close()
		if err := s.pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	address := pgtest.Database(t)
	options := edited(t, address, func(_ *url.URL, settings url.Values) {
		settings.Set("options", "-c lock_timeout=700 -c client_min_messages=error")
		settings.Set("statement_timeout", "11s")
	})
	tests := []struct{ address, name, want string }{
		{address, "lock_timeout", "3s"},
		{address, "statement_timeout", "30s"},
		{options, "lock_timeout", "700ms"},
		{options, "statement_timeout", "11s"},
		{options, "client_min_messages", "warning"},
	}
	for _, test := range tests {
		if got := show(test.address, test.name); got != test.want {
			t.Errorf("%s = %s, want %s", test.name, got, test.want)
		}
	}
}
