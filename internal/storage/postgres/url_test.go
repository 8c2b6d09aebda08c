package postgres

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit/proxy"
)

// A lock must be waited for for less time than an attempt has: otherwise the outcome would be unknown.
func TestLockTimeoutIsShorterThanAnAttempt(t *testing.T) {
	timeout, err := time.ParseDuration(defaultSettings["lock_timeout"])
	if err != nil || timeout >= defaultTimeouts.Attempt {
		t.Errorf("lock_timeout = %v, %v, want less than %v", timeout, err, defaultTimeouts.Attempt)
	}
}

func TestOpenErrors(t *testing.T) {
	address := pgtest.Database(t)
	edit := func(change func(u *url.URL)) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		change(u)
		return u.String()
	}
	wrongPassword := edit(func(u *url.URL) { u.User = url.UserPassword(pgtest.User, "not-to-be-seen-either") })
	tests := []struct{ name, address, want string }{
		{"a path", "plants.db", "use postgres://"},
		{"another engine", "mysql://root:not-to-be-seen@127.0.0.1/plants", "use postgres://"},
		{"a password that is not escaped", "postgres://user:not-to-be-seen%zz@127.0.0.1/plants", "URL is invalid"},
		{"a leading slash in the password", "postgres://user:/not-to-be-seen@127.0.0.1:x/plants", "URL is invalid"},
		{"a slash in the password", "postgres://user:not-to-be-seen/not-to-be-seen@127.0.0.1/plants", "URL is invalid"},
		{"a question mark in the password", "postgres://user:/?not-to-be-seen@127.0.0.1=/plants", "URL is invalid"},
		{"an at sign in the password", "postgres://user:x@not-to-be-seen@127.0.0.1/plants", "URL is invalid"},
		{"an at sign in a value", "postgres://user:not-to-be-seen@127.0.0.1/plants?a=b@c", "URL is invalid"},
		{"a number sign in the password", "postgres://user:x#not-to-be-seen@127.0.0.1/plants", "URL is invalid"},
		{"an invalid number", address + "&pool_max_conns=many", "URL is invalid"},
		{"an invalid sslmode", address + "&sslmode=maybe", "URL is invalid"},
		{"a missing file", address + "&sslmode=verify-full&sslrootcert=/not/there", "URL is invalid"},
		{"a server without TLS", address + "&sslmode=require", "refused TLS"},
		{"a wrong port", edit(func(u *url.URL) { u.Host = proxy.ClosedAddress(t) }), "no server listens"},
		{"a wrong socket", "postgres://postgres:not-to-be-seen@/plants?host=/not/there", "no server listens"},
		// The name is invalid, so that no name server is asked.
		{"an unknown host", "postgres://postgres:not-to-be-seen@host..invalid/plants", "can't be resolved"},
		{"a wrong password", wrongPassword, "rejected the user or the password"},
		{"an unknown user", pgtest.As(address, "unknown"), "rejected the user or the password"},
		{"an unknown database", edit(func(u *url.URL) { u.Path = "/nowhere" }), "no database of this name"},
		{"an unknown setting", address + "&no_such_setting=1", "no_such_setting"},
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
	changed := address + "&statement_timeout=11s&options=-c%20lock_timeout%3D700%20-c%20client_min_messages%3Derror"
	for address, want := range map[string]string{
		address: "plantstore UTF8 warning 30s 3s 30s on read committed",
		changed: "plantstore UTF8 warning 30s 700ms 11s on read committed",
	} {
		s := openStorage(t, address)
		var got string
		err := s.pool.QueryRow(t.Context(), settingsOf).Scan(&got)
		if err != nil || got != want {
			t.Errorf("the settings are %s, %v, want %s", got, err, want)
		}
	}
}
