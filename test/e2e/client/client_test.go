package client

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"

	plants "plantstore/client"
	"plantstore/test/testkit"
)

func newClient(t testing.TB, p *testkit.Server, options ...plants.Option) *plants.Client {
	t.Helper()
	c, err := plants.New(p.URL, p.Token, options...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantNumber(t testing.TB, what string, err error, number int32) {
	t.Helper()
	if e, ok := errors.AsType[*plants.Error](err); !ok || e.Number != number || e.Status != int(number)/100 ||
		e.Message == "" || e.RequestID == "" {
		t.Errorf("%s: %v, want error %d with a message and a request id", what, err, number)
	}
}

func samePlant(a, b plants.Plant) bool {
	return a.Name == b.Name && (a.Tag == nil) == (b.Tag == nil) && (a.Tag == nil || *a.Tag == *b.Tag)
}

func TestClient(t *testing.T) {
	t.Parallel()
	testkit.OnEachEngine(t, func(t *testing.T, p *testkit.Server) {
		ctx, c := t.Context(), newClient(t, p)
		empty, tag := "", "<b>\u2028\x01🌵"
		all := []plants.NewPlant{
			{ID: math.MinInt64, Plant: plants.Plant{Name: "lowest"}},
			{ID: -1, Plant: plants.Plant{Name: "", Tag: &empty}},
			{ID: 0, Plant: plants.Plant{Name: `é"\ `, Tag: &tag}},
			{ID: 1<<53 + 1, Plant: plants.Plant{Name: "past the floats"}},
			{ID: math.MaxInt64, Plant: plants.Plant{Name: "highest"}},
		}
		for range 2 { // A repetition is not an error.
			for _, want := range all {
				if got, err := c.Create(ctx, want); err != nil || !samePlant(got, want.Plant) {
					t.Errorf("Create(%d) = %+v, %v", want.ID, got, err)
				}
			}
		}
		for _, want := range all {
			if got, err := c.Get(ctx, want.ID); err != nil || got.ID != want.ID || !samePlant(got.Plant, want.Plant) ||
				got.ETag == "" {
				t.Errorf("Get(%d) = %+v, %v", want.ID, got, err)
			}
		}
		wantList(t, c, all)
		for _, test := range []struct {
			page plants.Page
			want string
		}{
			{plants.Page{Text: "FLOAT"}, "[9007199254740993]"},
			{plants.Page{Text: "EST", Size: 1}, "[-9223372036854775808 9223372036854775807]"},
			{plants.Page{Text: "est", After: &all[0].ID}, "[9223372036854775807]"},
			{plants.Page{Tag: &empty}, "[-1]"},
			{plants.Page{Tag: &tag}, "[0]"},
			{plants.Page{Tag: &tag, Text: "É\"\\"}, "[0]"},
			{plants.Page{Tag: &tag, Text: "highest"}, "[]"},
		} {
			ids := []int64{}
			for p, err := range c.Plants(ctx, test.page) {
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, p.ID)
			}
			if fmt.Sprint(ids) != test.want {
				t.Errorf("Plants(%+v): %v, want %s", test.page, ids, test.want)
			}
		}
		about, err := c.Token(ctx)
		want := plants.Token{Name: "first", Store: "main", Scopes: []string{
			"plants:create", "plants:read", "plants:write", "webhooks:manage"}}
		if err != nil || !reflect.DeepEqual(about, want) {
			t.Errorf("Token = %+v, %v, want %+v", about, err, want)
		}
		wantClientErrors(t, c, p)
	})
}

// wantList lists the plants in pages of several sizes and counts them.
func wantList(t *testing.T, c *plants.Client, all []plants.NewPlant) {
	t.Helper()
	ctx := t.Context()
	for _, size := range []int{0, 1, 2, 1000, 1001, math.MaxInt} {
		i := 0
		for got, err := range c.Plants(ctx, plants.Page{Size: size}) {
			if err != nil {
				t.Fatal(err)
			}
			if i == len(all) || got.ID != all[i].ID || !samePlant(got.Plant, all[i].Plant) {
				t.Fatalf("in pages of %d, plant number %d is %+v", size, i, got)
			}
			i++
		}
		if i != len(all) {
			t.Errorf("in pages of %d there are %d plants, want %d", size, i, len(all))
		}
	}
}

// wantClientErrors checks the errors of wrong requests, and of changes of a plant that has changed or was removed.
func wantClientErrors(t *testing.T, c *plants.Client, p *testkit.Server) {
	t.Helper()
	ctx := t.Context()
	_, err := c.Create(ctx, plants.NewPlant{ID: 0, Plant: plants.Plant{Name: "another"}})
	wantNumber(t, "create a taken id", err, 40009)
	_, err = c.Create(ctx, plants.NewPlant{ID: 5, Plant: plants.Plant{Name: "a\x00"}})
	wantNumber(t, "create with U+0000", err, 40016)
	for _, err := range c.Plants(ctx, plants.Page{Size: -1}) {
		wantNumber(t, "list in pages of -1", err, 40026)
	}
	for _, err := range c.Plants(ctx, plants.Page{Text: "\xff"}) {
		wantNumber(t, "search for text that is not UTF-8", err, 40029)
	}

	seen, _ := c.Get(ctx, -1)
	changed, err := c.Replace(ctx, -1, plants.Plant{Name: "Ivy"}, seen.ETag)
	if err != nil || changed.Name != "Ivy" || changed.Tag != nil || changed.ID != -1 || changed.ETag == seen.ETag {
		t.Errorf("Replace = %+v, %v", changed, err)
	}
	_, err = c.Replace(ctx, -1, plants.Plant{Name: "Oak"}, seen.ETag)
	wantNumber(t, "replace what has changed", err, 41201)
	wantNumber(t, "remove what has changed", c.Remove(ctx, -1, seen.ETag), 41201)
	if err := c.Remove(ctx, -1, changed.ETag); err != nil {
		t.Error(err)
	}
	_, err = c.Get(ctx, -1)
	wantNumber(t, "get what is removed", err, 40401)
	_, err = c.Replace(ctx, -1, plants.Plant{Name: "Oak"}, plants.Any)
	wantNumber(t, "replace what is removed", err, 40401)
	wantNumber(t, "remove what is removed", c.Remove(ctx, -1, plants.Any), 40401)

	unauthorized, err := plants.New(p.URL, "plant_unknown")
	if err != nil {
		t.Fatal(err)
	}
	_, err = unauthorized.Get(ctx, 0)
	wantNumber(t, "a wrong token", err, 40103)
}
