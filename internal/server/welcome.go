package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// minFixedToken is the shortest fixed token: anything shorter can be guessed.
const minFixedToken = 16

// fixedToken returns the token of cfg.Token, or nil if there is none.
func fixedToken(cfg Config) (*token.Token, error) {
	credential := cfg.Token
	if credential == "" {
		return nil, nil
	}
	if len(credential) < minFixedToken || !token.IsBearer(credential) {
		return nil, fmt.Errorf("the fixed token must have %d or more letters, digits and -._~+/, and no other characters",
			minFixedToken)
	}
	fixed := &token.Token{
		Name: "fixed", Hash: token.HashOf(credential), Store: token.DefaultStore, Scopes: token.AllScopes,
	}
	cfg.Log.Info("fixed token in use, with every scope", "from", cfg.TokenFrom, "store", fixed.Store)
	return fixed, nil
}

// welcome prints the addresses. On an empty database it issues a first token, which is shown only here. Without
// cfg.Out it does nothing.
func welcome(ctx context.Context, cfg Config, st storage.Storage, base *url.URL, hasFixed bool) error {
	if cfg.Out == nil {
		return nil
	}
	fmt.Fprintf(cfg.Out, "Plant Store serves %s\nConsole: %s/\nReference: %s/docs\n", base, base, base)
	if hasFixed {
		return nil
	}
	all, err := st.Tokens(ctx)
	isEmpty := len(all) == 0
	if isEmpty && err == nil { // or its tokens were pruned
		stores, storesErr := st.Stores(ctx)
		isEmpty, err = len(stores) == 0, storesErr
	}
	if err != nil {
		return err
	}
	if !isEmpty {
		fmt.Fprint(cfg.Out, "Another token: plantstore token issue --name NAME, with the same --db\n")
		return nil
	}
	first, credential := token.New("first", token.DefaultStore, token.AllScopes, time.Now(), time.Time{})
	switch err := st.AddToken(ctx, first); {
	case errors.Is(err, token.ErrNameTaken): // another process on this database was faster
		return nil
	case err != nil:
		return err
	}
	fmt.Fprintf(cfg.Out, `
The first token, with every scope on the store %q. It is shown only once:

  %s

Create a plant:

  curl -i %s/plants \
    -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' \
    -d '{"id":1,"name":"Monstera deliciosa","tag":"climber"}'

`, token.DefaultStore, credential, base, credential)
	return nil
}

// CheckBaseURL returns an error if Run would refuse Config.BaseURL.
func CheckBaseURL(text string) error {
	_, err := baseURL(text, new(net.TCPAddr), false)
	return err
}

// baseURL parses the public address and removes a slash at the end of its path. If text is empty, it is the address
// that the service listens on, or localhost if it listens on every address of the machine.
func baseURL(text string, listening net.Addr, secure bool) (*url.URL, error) {
	if text == "" && secure {
		text = "https://" + hostPort(listening, "localhost")
	} else if text == "" {
		text = "http://" + hostPort(listening, "localhost")
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("base URL %q must be an address such as https://plants.example/some/prefix", text)
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("base URL %q must have no user, query or fragment", text)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if strings.ContainsAny(u.Path, "{} ") || u.RawPath != "" || u.Path != "" && path.Clean(u.Path) != u.Path {
		return nil, fmt.Errorf("base URL %q must have a path of plain segments", text)
	}
	return u, nil
}

// hostPort returns the address that the service listens on. If its host is [::] or 0.0.0.0, which no client can use,
// every replaces the host.
func hostPort(listening net.Addr, every string) string {
	if tcp, ok := listening.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return every + ":" + strconv.Itoa(tcp.Port)
	}
	return listening.String()
}
