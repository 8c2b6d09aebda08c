package postgres

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit/proxy"
)

func TestIsURL(t *testing.T) {
	for db, want := range map[string]bool{
		"postgres://host/db": true, "postgresql://host/db": true, "postgres:/host": false, "plants.db": false,
		"postgres": false, "mysql://host/db": false, "": false, "file:postgres://": false,
	} {
		if got := IsURL(db); got != want {
			t.Errorf("IsURL(%q) = %v, want %v", db, got, want)
		}
	}
}

func TestHasStrayAt(t *testing.T) {
	for address, want := range map[string]bool{
		"postgres://host":                      false,
		"postgres://host/db":                   false,
		"postgres://user@host":                 false,
		"postgres://user:pass@host/db":         false,
		"postgres://user:pass%40@host/db?a=b":  false,
		"postgres://user:p@ss@host":            true,
		"postgres://user:p@ss@host/db":         true,
		"postgres://user:pass@host/d@b":        true,
		"postgres://user:pass@host/db?a=b@c":   true,
		"postgres://user:pass@host/db#@":       true,
		"postgres://user:pass@host?a=b@c":      true,
		"postgres://user:pa/ss@host/db":        true,
		"postgres://user:pass@one,two:5433/db": false,
	} {
		if got := hasStrayAt(address); got != want {
			t.Errorf("hasStrayAt(%q) = %v, want %v", address, got, want)
		}
	}
}

func TestParseURL(t *testing.T) {
	tests := []struct {
		params         string
		conns          int32
		connectTimeout time.Duration
		settings       map[string]string
	}{
		{"", 0, 3 * time.Second, map[string]string{
			"lock_timeout": "3s", "statement_timeout": "30s", "idle_in_transaction_session_timeout": "30s",
			"application_name": "plantstore", "client_encoding": "UTF8", "client_min_messages": "warning",
			"default_transaction_isolation": "read committed",
		}},
		{"pool_max_conns=3&connect_timeout=7", 3, 7 * time.Second, map[string]string{"lock_timeout": "3s"}},
		{"lock_timeout=1s&application_name=mine", 0, 3 * time.Second, map[string]string{
			"lock_timeout": "1s", "statement_timeout": "30s", "application_name": "plantstore",
		}},
		{"options=-c%20statement_timeout%3D5s", 0, 3 * time.Second, map[string]string{
			"lock_timeout": "3s", "statement_timeout": "", "options": "-c statement_timeout=5s",
		}},
	}
	for _, test := range tests {
		config, err := parseURL("postgres://user:password@host/db?" + test.params)
		if err != nil {
			t.Fatalf("parseURL(%q) = %v", test.params, err)
		}
		if config.MaxConns != test.conns || config.ConnConfig.ConnectTimeout != test.connectTimeout {
			t.Errorf("parseURL(%q): %d connections, connect timeout %v, want %d, %v", test.params,
				config.MaxConns, config.ConnConfig.ConnectTimeout, test.conns, test.connectTimeout)
		}
		for name, want := range test.settings {
			if got := config.ConnConfig.RuntimeParams[name]; got != want {
				t.Errorf("parseURL(%q): %s = %q, want %q", test.params, name, got, want)
			}
		}
	}
}

// A lock must be waited for for less time than an attempt has: otherwise the outcome would be unknown.
func TestLockTimeoutIsShorterThanAnAttempt(t *testing.T) {
	timeout, err := time.ParseDuration(defaultSettings["lock_timeout"])
	if err != nil || timeout >= attemptTimeout {
		t.Errorf("lock_timeout = %v, %v, want less than %v", timeout, err, attemptTimeout)
	}
}

func TestDisplayURL(t *testing.T) {
	config, err := parseURL("postgres://user:not-to-be-seen@host.example:5433/plants?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := displayURL(config.ConnConfig), "postgres://user@host.example:5433/plants"; got != want {
		t.Errorf("displayURL() = %q, want %q", got, want)
	}
}

func TestOpenErrors(t *testing.T) {
	address := pgtest.Database(t)
	edit := func(edit func(u *url.URL)) string {
		return editURL(t, address, func(u *url.URL, _ url.Values) { edit(u) })
	}
	as := func(user, password string) string {
		return edit(func(u *url.URL) { u.User = url.UserPassword(user, password) })
	}
	param := func(name, value string) string { return withParam(t, address, name, value) }
	tests := []struct{ name, address, want string }{
		{"a path", "plants.db", "use postgres://"},
		{"another engine", "mysql://root:not-to-be-seen@127.0.0.1/plants", "use postgres://"},
		{"a password that is not escaped", "postgres://user:not-to-be-seen%zz@127.0.0.1/plants", "URL is invalid"},
		{"a leading slash in the password", "postgres://user:/not-to-be-seen@127.0.0.1:x/plants", "URL is invalid"},
		{"a slash in the password", "postgres://user:not-to-be-seen/not-to-be-seen@127.0.0.1/plants", "URL is invalid"},
		{"a question mark in the password", "postgres://user:/?not-to-be-seen@127.0.0.1=/plants", "URL is invalid"},
		{"an at sign in the password", "postgres://user:x@not-to-be-seen@127.0.0.1/plants", "URL is invalid"},
		{"a number sign in the password", "postgres://user:x#not-to-be-seen@127.0.0.1/plants", "URL is invalid"},
		{"an invalid number", param("pool_max_conns", "many"), "URL is invalid"},
		{"an invalid sslmode", param("sslmode", "maybe"), "URL is invalid"},
		{"a missing file", param("sslmode", "verify-full") + "&sslrootcert=/not/there", "URL is invalid"},
		{"a server without TLS", param("sslmode", "require"), "refused TLS"},
		{"a wrong port", edit(func(u *url.URL) { u.Host = proxy.ClosedAddress(t) }), "no server listens"},
		{"a wrong socket", "postgres://postgres:not-to-be-seen@/plants?host=/not/there", "no server listens"},
		// The name is invalid, so that no name server is asked.
		{"an unknown host", "postgres://postgres:not-to-be-seen@host..invalid/plants", "can't be resolved"},
		{"a wrong password", as(pgtest.User, "not-to-be-seen-either"), "rejected the user or the password"},
		{"an unknown user", as("unknown", pgtest.Password), "rejected the user or the password"},
		{"an unknown database", edit(func(u *url.URL) { u.Path = "/nowhere" }), "no database of this name"},
		{"an unknown setting", param("no_such_setting", "1"), "no_such_setting"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := wantOpenError(t, test.address, test.want)
			for _, form := range []string{"%v", "%+v", "%#v"} {
				if text := fmt.Sprintf(form, err); strings.Contains(text, "not-to-be-seen") {
					t.Errorf("Open() shows the password: %s", text)
				}
			}
			if strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "open the database") {
				t.Errorf("Open() = %q, want one line that starts with what failed", err)
			}
		})
	}
}

// The settings of the URL replace the default ones, but not the fixed ones.
func TestSessionSettings(t *testing.T) {
	address := pgtest.Database(t)
	changed := editURL(t, address, func(_ *url.URL, params url.Values) {
		params.Set("options", "-c lock_timeout=700 -c client_min_messages=error")
		params.Set("statement_timeout", "11s")
	})
	for _, test := range []struct{ address, name, want string }{
		{address, "lock_timeout", "3s"},
		{address, "statement_timeout", "30s"},
		{changed, "lock_timeout", "700ms"},
		{changed, "statement_timeout", "11s"},
		{changed, "client_min_messages", "warning"},
	} {
		s := openStore(t, test.address)
		var got string
		err := s.pool.QueryRow(t.Context(), "SELECT current_setting($1)", test.name).Scan(&got)
		if err != nil || got != test.want {
			t.Errorf("%s = %s, %v, want %s", test.name, got, err, test.want)
		}
		s.Close()
	}
}
