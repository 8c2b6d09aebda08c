package client_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"plantstore/client"
)

// ids serves plants 1 to 5 in pages. Its links name another host, which must not be used.
func ids(pages *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		pages.Add(1)
		limit, after := 2, int64(0)
		fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		fmt.Sscan(r.URL.Query().Get("after"), &after)
		page := []client.NewPlant{}
		for id := after + 1; id <= 5 && len(page) < limit; id++ {
			page = append(page, client.NewPlant{ID: id, Plant: client.Plant{Name: "x"}})
		}
		if end := after + int64(limit); end < 5 {
			w.Header().Add("Link", `</docs>; rel="help"`)
			w.Header().Add("Link", fmt.Sprintf(`<http://elsewhere.invalid/plants?limit=%d&after=%d>; rel="next"`, limit, end))
		}
		json.NewEncoder(w).Encode(page)
	}
}

func TestPlants(t *testing.T) {
	var pages atomic.Int32
	c, s := start(t, busy, ids(&pages))
	after := int64(3)
	for _, test := range []struct {
		from  client.Page
		stop  int
		want  string
		pages int32
	}{
		{client.Page{}, 0, "[1 2 3 4 5]", 3},
		{client.Page{Size: 1000}, 0, "[1 2 3 4 5]", 1},
		{client.Page{After: &after}, 0, "[4 5]", 1},
		{client.Page{}, 2, "[1 2]", 1},
		{client.Page{}, 3, "[1 2 3]", 2},
	} {
		pages.Store(0)
		var got []int64
		for p, err := range c.Plants(t.Context(), test.from) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, p.ID); len(got) == test.stop {
				break
			}
		}
		if fmt.Sprint(got) != test.want || pages.Load() != test.pages {
			t.Errorf("%+v to %d: %v in %d pages, want %s in %d",
				test.from, test.stop, got, pages.Load(), test.want, test.pages)
		}
	}
	s.wantRequests(t, 1+3+1+1+1+2)
}

func TestLinks(t *testing.T) {
	for link, want := range map[string]string{ // the query of the second request, if there is one
		`</plants?after=1>; rel="next"`:                               "after=1",
		`<http://elsewhere.invalid/x?after=1>; rel=next`:              "after=1",
		`</plants?after=-12>; title="more"; rel="next"`:               "after=-12",
		`</plants?after=0>; rel="prev", </plants?after=1>;  rel=next`: "after=1",
		`</plants?after=1&limit=2>; rel="next", </docs>; rel="help"`:  "after=1", // the rest of the query stays
		`</plants?after=0>; rel="prev"`:                               "",
		`</plants?after=0>, </docs>; rel="help"`:                      "",
		`/plants?after=1; rel="next"`:                                 "",
		`</plants?after=1>`:                                           "",
		``:                                                            "",
	} {
		var query string
		c, s := start(t, reply(200, `[{"id":1,"name":"x"}]`, "Link: "+link), func(w http.ResponseWriter, r *http.Request) {
			query = r.URL.RawQuery
			io.WriteString(w, "[]")
		})
		if err := list(t.Context(), c); err != nil || query != want {
			t.Errorf("Link %s: the next query is %q (%v), want %q", link, query, err, want)
		}
		if want == "" {
			s.wantRequests(t, 1)
		}
	}
}

// An iteration follows links, also from empty pages, and ends with its first error.
func TestPages(t *testing.T) {
	page := func(ids string, link string) http.HandlerFunc {
		var plants []string
		for _, id := range strings.Fields(ids) {
			plants = append(plants, fmt.Sprintf(`{"id":%s,"name":"x"}`, id))
		}
		return reply(200, "["+strings.Join(plants, ",")+"]", `Link: </plants?q=x&`+link+`>; rel="next"`)
	}
	last := reply(200, `[]`)
	for what, test := range map[string]struct {
		steps    steps
		returned string
		fails    bool
	}{
		"empty pages to a plant": {steps{page("", "after=10"), page("", "after=20"), page("21", "after=30"), last},
			"[21]", false},
		"empty pages after a plant": {steps{page("1", "after=10"), page("", "after=20"), page("25", "after=25"), last},
			"[1 25]", false},
		"from the smallest id": {steps{page("", "after=-9223372036854775808"), last}, "[]", false},
		"exact ids": {steps{page("-9223372036854775808 9007199254740993 9223372036854775807", "after=9223372036854775807"),
			last}, "[-9223372036854775808 9007199254740993 9223372036854775807]", false},
		"a link without an id":   {steps{page("", "cursor=1")}, "[]", true},
		"a link with a word":     {steps{page("", "after=x")}, "[]", true},
		"a link without a query": {steps{reply(200, "[]", `Link: </plants>; rel="next"`)}, "[]", true},
		"an invalid query":       {steps{page("", "after=%zz")}, "[]", true},
		"refused":                {steps{taken}, "[]", true},
		"refused on page 2":      {steps{page("1 2", "after=2"), taken}, "[1 2]", true},
		"not a list":             {steps{notOurs}, "[]", true},
		"not a list of plants":   {steps{reply(200, `[{"fish":1}]`)}, "[]", true},
		"a plant without a name": {steps{reply(200, `[{"id":1}]`)}, "[]", true},
		"a plant without an id":  {steps{reply(200, `[{"name":"x"}]`)}, "[]", true},
		"an id beyond int64":     {steps{page("9223372036854775808", "after=1")}, "[]", true},
	} {
		c, s := start(t, test.steps...)
		returned, failed := []int64{}, 0
		for p, err := range c.Plants(t.Context(), client.Page{Text: "x"}) {
			if err != nil {
				failed++
			} else {
				returned = append(returned, p.ID)
			}
		}
		if fmt.Sprint(returned) != test.returned || failed > 1 || (failed == 1) != test.fails {
			t.Errorf("%s: plants %v, %d errors; want %s, %v", what, returned, failed, test.returned, test.fails)
		}
		s.wantRequests(t, int32(len(test.steps)))
	}
	c, _ := start(t, page("", "after=x"))
	const want = `the service returned an invalid link to the next page, "/plants?q=x&after=x"`
	if err := list(t.Context(), c); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
