package httpapi

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// getToken returns what a client may know about its own token: never the credential or its hash.
func (a *API) getToken(x *exchange) error {
	t, limit := x.token, a.rateOf(x.token)
	return writeStatus(x, struct {
		Name    string    `json:"name"`
		Store   string    `json:"store"`
		Scopes  []string  `json:"scopes"`
		Expires time.Time `json:"expires,omitzero"`
		Rate    string    `json:"rate,omitzero"`
		Burst   int64     `json:"burst,omitzero"`
	}{t.Name, t.Store, t.Scopes.Names(), t.Expires, limit.String(), limit.Burst})
}

// getActivity returns how many plants this process has created in the store of the token.
func (a *API) getActivity(x *exchange) error {
	return writeStatus(x, struct {
		Process string `json:"process"`
		Created int64  `json:"created"`
	}{a.created.process, a.created.in(x.token.Store)})
}

func writeStatus(x *exchange, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	x.Header().Set("Cache-Control", "no-store")
	writeJSON(x, http.StatusOK, body)
	return nil
}

// createdPlants counts the plants that this process has created, by store. Stores beyond maxLimited are not counted:
// an identity provider can name any number of them.
type createdPlants struct {
	process string // identifies the process, whose counts start at zero

	mu      sync.Mutex
	byStore map[string]int64
}

func (c *createdPlants) count(store string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.byStore[store]; known || len(c.byStore) < maxLimited {
		c.byStore[store]++
	}
}

func (c *createdPlants) in(store string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byStore[store]
}
