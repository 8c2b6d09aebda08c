package server

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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
