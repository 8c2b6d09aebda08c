package httpapi

import (
	"cmp"
	"net/http"
	"time"
)

// getToken returns what a client may know about its own token: never the credential or its hash.
func (a *API) getToken(x *exchange) error {
	t, limit := x.token, cmp.Or(x.token.Rate, a.cfg.Rate)
	return writeContent(x, http.StatusOK, struct {
		Name    string    `json:"name"`
		Store   string    `json:"store"`
		Scopes  []string  `json:"scopes"`
		Expires time.Time `json:"expires,omitzero"`
		Rate    string    `json:"rate,omitzero"`
		Burst   int64     `json:"burst,omitzero"`
		Sandbox bool      `json:"sandbox,omitzero"`
	}{t.Name, t.Store, t.Scopes.Names(), t.Expires, limit.String(), limit.Burst, t.Sandbox})
}
