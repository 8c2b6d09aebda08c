package client

import (
	"testing"

	plants "plantstore/client"
	"plantstore/internal/testkit"
)

// The Go client waits as long as Retry-After says and then succeeds, also with requests that it otherwise never
// retries.
func TestClientKeepsToTheRate(t *testing.T) {
	t.Parallel()
	db := testkit.Engines[0].Database(t)
	p := testkit.Start(t, db)
	p.Token = testkit.IssueToken(t, db, "--name", "hourly", "--rate", "1/h", "--burst", "1")
	wantNumber(t, "without retries", func() error {
		c := newClient(t, p, plants.WithRetries(0, 0))
		_, err := c.Create(t.Context(), plants.NewPlant{ID: 1})
		if err == nil {
			_, err = c.Get(t.Context(), 1)
		}
		return err
	}(), 42901)
	p.Token = testkit.IssueToken(t, db, "--name", "limited", "--rate", "2/s", "--burst", "1")
	p.Do(t, "GET", "/plants/1", "") // so that the next request has to wait
	c := newClient(t, p)
	if _, err := c.Create(t.Context(), plants.NewPlant{ID: 1}); err != nil {
		t.Errorf("Create() = %v", err)
	}
	if _, err := c.Replace(t.Context(), 1, plants.Plant{Name: "x"}, plants.Any); err != nil {
		t.Errorf("Replace() = %v", err)
	}
}
