package postgres

import (
	"errors"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// defaultSettings limit how long the server works for a client that it has lost. The URL can change them.
var defaultSettings = map[string]string{
	"lock_timeout":                        "3s", // ends an attempt with the certainty that nothing was stored
	"statement_timeout":                   "30s",
	"idle_in_transaction_session_timeout": "30s",
}

// fixedSettings are those of every session, whatever the URL or the role of the user set.
var fixedSettings = map[string]string{
	"client_min_messages":           "warning", // see recordWarning
	"default_transaction_isolation": "read committed",
	"standard_conforming_strings":   "on", // so that only the quote is special in a literal
}

// IsURL reports whether a --db value is the URL of a PostgreSQL server.
func IsURL(db string) bool {
	return strings.HasPrefix(db, "postgres://") || strings.HasPrefix(db, "postgresql://")
}

// ParseURL returns the configuration of a URL. The errors of pgx may quote the URL with its password, so
// they are not passed on.
func ParseURL(address string) (*pgxpool.Config, error) {
	if !IsURL(address) {
		return nil, errors.New("the address is not a PostgreSQL URL; " +
			"use postgres://user:password@host:port/database")
	}
	config, err := pgxpool.ParseConfig(address)
	if err != nil || hasStrayAt(address) {
		return nil, errors.New("the URL is invalid; use postgres://user:password@host:port/database?setting=value, " +
			"escape characters such as @ : / ? # % in a name, password or value as % and two hexadecimal digits, " +
			"and check the values of settings such as sslmode and pool_max_conns and the files that they name")
	}
	params := config.ConnConfig.RuntimeParams
	for name, value := range defaultSettings {
		if params[name] == "" && !strings.Contains(params["options"], name) {
			params[name] = value
		}
	}
	maps.Copy(params, fixedSettings)
	params["application_name"], params["client_encoding"] = "plantstore", "UTF8"
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if !strings.Contains(address, "pool_max_conns=") {
		config.MaxConns = 0 // see divideConns
	}
	config.ConnConfig.OnNotice = recordWarning
	return config, nil
}

// hasStrayAt reports whether a URL has an @ other than the one after the user and password. Then a part
// of the password may have been parsed as the host or the path, and an error would show it.
func hasStrayAt(address string) bool {
	_, rest, _ := strings.Cut(address, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	return strings.Count(rest[:end], "@") > 1 || strings.Contains(rest[end:], "@")
}

// DisplayURL is the URL of a database without the password.
func DisplayURL(config *pgx.ConnConfig) string {
	host := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	u := url.URL{Scheme: "postgres", User: url.User(config.User), Host: host, Path: "/" + config.Database}
	return u.String()
}
