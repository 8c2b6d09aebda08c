package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"plantstore/internal/testkit"
)

// A search returns the same plants on every engine, whatever collation its database has.
func TestSearch(t *testing.T) {
	all := testkit.StartOnEachEngine(t)
	for id, p := range []string{
		`"name":"Monstera deliciosa","tag":"climber"`, `"name":"Fern","tag":"Shade"`, `"name":"Ivy","tag":"climber"`,
		`"name":"STRAẞE"`, `"name":"300 \u212a"`, `"name":"ΟΔΟΣ","tag":""`, `"name":"İstanbul"`, `"name":"ılık"`,
		`"name":"ФИКУС","tag":"дом"`, `"name":"cactus 🌵"`, `"name":"100% a_b\\c","tag":"climbe"`, `"name":""`,
		`"name":"e\u0301"`, `"name":"\u00e9"`,
	} {
		if a := all.Create(t, fmt.Sprintf(`{"id":%d,%s}`, id, p)); a.Status != 200 {
			t.Fatalf("create %s: %d %s", p, a.Status, a.Body)
		}
	}
	for _, test := range []struct{ tag, q, want string }{
		{"climber", "", "[0 2]"}, {"Climber", "", "[]"}, {"shade", "", "[]"}, {"дом", "", "[8]"},
		{"climber", "IVY", "[2]"}, {"climber", "fern", "[]"}, {"climber", "climber", "[0 2]"},
		{"none", "mon", "[0]"}, {"none", "CLIMB", "[0 2 10]"}, {"none", "shade", "[1]"}, {"none", "straße", "[3]"},
		{"none", "strasse", "[]"}, {"none", "300 k", "[4]"}, {"none", "\u212a", "[4 7]"}, {"none", "οδος", "[5]"},
		{"none", "istanbul", "[]"}, {"none", "İST", "[6]"}, {"none", "ILIK", "[]"}, {"none", "фикус", "[8]"},
		{"none", "ДОМ", "[8]"}, {"none", "S 🌵", "[9]"}, {"none", "0%", "[10]"}, {"none", "%", "[10]"},
		{"none", "_", "[10]"}, {"none", `\`, "[10]"}, {"none", "'", "[]"}, {"none", "É", "[13]"},
		{"none", "E\u0301", "[12]"}, {"", "", "[5]"}, {"", "ο", "[5]"},
	} {
		query := url.Values{"q": {test.q}}
		if test.tag != "none" {
			query.Set("tag", test.tag)
		}
		for _, limit := range []string{"1", "2", "1000"} {
			query.Set("limit", limit)
			if got := fmt.Sprint(walk(t, all.Do, "/plants?"+query.Encode())); got != test.want {
				t.Errorf("%v: plants %s, want %s", query, got, test.want)
			}
		}
	}
	a := all.Do(t, "GET", "/plants?tag=climber", "", "Prefer: count=exact")
	testkit.WantResponse(t, "a search with a count", a, 200,
		`[{"id":0,"name":"Monstera deliciosa","tag":"climber"},{"id":2,"name":"Ivy","tag":"climber"}]`)
	if a.Header.Get("Plants-Count") != "" || a.Header.Get("Preference-Applied") != "" {
		t.Errorf("a search has the count %q", a.Header.Get("Plants-Count"))
	}
}

type doer func(t testing.TB, method, path, body string, headers ...string) testkit.Response

// walk follows the links from a path and returns the ids of all pages.
func walk(t *testing.T, do doer, path string) (ids []int64) {
	t.Helper()
	for path != "" {
		a := do(t, "GET", path, "")
		var page []struct{ ID int64 }
		if err := json.Unmarshal([]byte(a.Body), &page); err != nil || a.Status != 200 {
			t.Fatalf("%s: %d %.200s", path, a.Status, a.Body)
		}
		for _, p := range page {
			ids = append(ids, p.ID)
		}
		path, _, _ = strings.Cut(strings.TrimPrefix(a.Header.Get("Link"), "<"), ">")
	}
	return ids
}

// A search in a store of more plants than a request examines returns empty pages with links, and then the plants.
func TestSearchOfManyPlants(t *testing.T) {
	const plants = 12_000
	for _, e := range testkit.OneOfEach() {
		t.Run(e.Name, func(t *testing.T) {
			p := testkit.Start(t, e.Database(t))
			fill(t, p, plants)
			target := fmt.Sprintf("/plants?q=PLANT+%d", plants-1)
			first, second := p.Do(t, "GET", target, ""), p.Do(t, "GET", target+"&after=9999&limit=100", "")
			testkit.WantResponse(t, "the first page", first, 200, "[]")
			testkit.WantResponse(t, "the second page", second, 200, `[{"id":11999,"name":"Plant 11999"}]`)
			link := `</plants?after=9999&limit=100&q=PLANT+11999>; rel="next"`
			if first.Header.Get("Link") != link || second.Header.Get("Link") != "" {
				t.Errorf("Link: %q and %q, want %q and none", first.Header.Get("Link"), second.Header.Get("Link"), link)
			}
			var want []int64
			for id := range int64(plants) {
				if strings.Contains(fmt.Sprint(id), "777") {
					want = append(want, id)
				}
			}
			if got := walk(t, p.Do, "/plants?limit=9&q=777"); !slices.Equal(got, want) {
				t.Errorf("%d plants %v, want %d", len(got), got, len(want))
			}
		})
	}
}

// fill creates plants 0 to n-1.
func fill(t *testing.T, p *testkit.Server, n int) {
	t.Helper()
	const clients = 64
	var all sync.WaitGroup
	for first := range clients {
		all.Go(func() {
			for id := first; id < n && !t.Failed(); id += clients {
				a, err := p.Send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"Plant %d"}`, id, id))
				if err != nil || a.Status != 200 {
					t.Errorf("create plant %d: %v %d %.200s", id, err, a.Status, a.Body)
				}
			}
		})
	}
	all.Wait()
}
