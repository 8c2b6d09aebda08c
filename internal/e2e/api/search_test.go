package api

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// For random plants and queries, the pages of a search have exactly the plants that contain the text, on every engine.
func TestRandomSearches(t *testing.T) {
	all := testkit.StartOnEachEngine(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	letters := []rune("aAbBkK\u212asSſßẞσςΣiIıİéÉжЖ🌵%_\\' \u00a0\u0301")
	text := func(most int) string {
		chosen := make([]rune, random.IntN(most+1))
		for i := range chosen {
			chosen[i] = letters[random.IntN(len(letters))]
		}
		return string(chosen)
	}
	type stored struct {
		ID   int64   `json:"id"`
		Name string  `json:"name"`
		Tag  *string `json:"tag,omitempty"`
	}
	var plants []stored
	for id := range int64(80) {
		p := stored{ID: id*id - 1000, Name: text(8)}
		if random.IntN(2) == 0 {
			p.Tag = new(text(2))
		}
		body, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		all.Create(t, string(body))
		plants = append(plants, p)
	}
	found := 0
	for range 100 {
		q, tag := text(2), text(1)
		query := url.Values{"q": {q}, "limit": {fmt.Sprint(1 + random.IntN(30))}}
		byTag := random.IntN(3) == 0
		if byTag {
			query.Set("tag", tag)
		}
		var want []int64
		for _, p := range plants {
			if (!byTag || p.Tag != nil && *p.Tag == tag) && (contains(p.Name, q) || p.Tag != nil && contains(*p.Tag, q)) {
				want = append(want, p.ID)
			}
		}
		if got := walk(t, all.Do, "/plants?"+query.Encode()); !slices.Equal(got, want) {
			t.Errorf("seed %d, %v: plants %v, want %v", seed, query, got, want)
		}
		found += len(want)
	}
	if found == 0 {
		t.Error("no search found anything")
	}
}

// contains compares every part of the text with strings.EqualFold, which is another way to ignore case.
func contains(text, part string) bool {
	runes, length := []rune(text), len([]rune(part))
	for i := 0; i+length <= len(runes); i++ {
		if strings.EqualFold(string(runes[i:i+length]), part) {
			return true
		}
	}
	return false
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
			db := e.Database(t)
			p := testkit.Start(t, db)
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
			greedy := testkit.Target{URL: p.URL, Token: testkit.IssueToken(t, db, "--name", "greedy")}
			searchDuringSearches(t, p, greedy)
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

// searchDuringSearches checks that a token whose clients search all the time does not delay requests of another: few of
// its 64 searches that wait run before a search of the other.
func searchDuringSearches(t *testing.T, p *testkit.Server, greedy testkit.Target) {
	t.Helper()
	end := make(chan struct{})
	var all sync.WaitGroup
	var searches atomic.Int32
	for range 64 {
		all.Go(func() {
			for !t.Failed() {
				select {
				case <-end:
					return
				default:
				}
				a, err := greedy.Send("GET", "/plants?q=absent", "")
				if err != nil || a.Status != 200 && a.Number() != 50301 {
					t.Errorf("a search of the greedy token: %v %d %.200s", err, a.Status, a.Body)
				}
				if a.Status == 200 { // others may not wait
					searches.Add(1)
				}
			}
		})
	}
	testkit.WaitFor(t, "searches of the greedy token", func() bool { return searches.Load() > 5 || t.Failed() })
	const rounds = 20
	var between int32
	for id := range rounds {
		before := searches.Load()
		testkit.WantResponse(t, "a search", p.Do(t, "GET", "/plants?q=plant+11999&after=9999", ""), 200,
			`[{"id":11999,"name":"Plant 11999"}]`)
		between += searches.Load() - before
		testkit.WantResponse(t, "a read", p.Do(t, "GET", "/plants/7", ""), 200, `{"id":7,"name":"Plant 7"}`)
		testkit.WantResponse(t, "a create", p.Create(t, fmt.Sprintf(`{"id":%d,"name":"x"}`, -1-id)), 200, `{"name":"x"}`)
	}
	close(end)
	all.Wait()
	t.Logf("%d searches of the greedy token during %d of another", between, rounds)
	if between > 20*rounds {
		t.Errorf("%d searches of the greedy token during %d of another", between, rounds)
	}
}
