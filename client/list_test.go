package client_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

func TestPlantsEndWithAnError(t *testing.T) {
	page := `[{"id":1,"name":"x"},{"id":2,"name":"x"}]`
	next := `Link: </plants?after=2>; rel="next"`
	for what, test := range map[string]struct {
		steps    steps
		returned int
	}{
		"refused":                {steps{taken}, 0},
		"refused on page 2":      {steps{reply(200, page, next), taken}, 2},
		"the same page again":    {steps{reply(200, page, next)}, 2},
		"not a list":             {steps{notOurs}, 0},
		"not a list of plants":   {steps{reply(200, `[{"fish":1}]`)}, 0},
		"a plant without a name": {steps{reply(200, `[{"id":1}]`)}, 0},
		"a plant without an id":  {steps{reply(200, `[{"name":"x"}]`)}, 0},
		"an id beyond int64":     {steps{reply(200, `[{"id":9223372036854775808,"name":"x"}]`)}, 0},
	} {
		c, _ := start(t, test.steps...)
		var returned, failed int
		for _, err := range c.Plants(t.Context(), client.Page{}) {
			if err != nil {
				failed++
			} else {
				returned++
			}
		}
		if returned != test.returned || failed != 1 {
			t.Errorf("%s: %d plants and %d errors, want %d and 1", what, returned, failed, test.returned)
		}
	}
}

func TestLinks(t *testing.T) {
	for link, want := range map[string]string{ // the query of the second request, if there is one
		`</plants?after=1>; rel="next"`:                               "after=1",
		`<http://elsewhere.invalid/x?after=1>; rel=next`:              "after=1",
		`</plants?after=1>; title="more"; rel="next"`:                 "after=1",
		`</plants?after=0>; rel="prev", </plants?after=1>;  rel=next`: "after=1",
		`</plants?after=1&limit=2>; rel="next", </docs>; rel="help"`:  "after=1&limit=2",
		`</plants?after=0>; rel="prev"`:                               "",
		`</plants?after=0>, </docs>; rel="help"`:                      "",
		`</plants>; rel="next"`:                                       "",
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

// Empty pages are followed as long as their links lead on, so that the iteration ends whatever the service does.
func TestEmptyPages(t *testing.T) {
	empty := func(after string) http.HandlerFunc {
		return reply(200, `[]`, `Link: </plants?q=x&`+after+`>; rel="next"`)
	}
	plant := func(id int, after string) http.HandlerFunc {
		return reply(200, fmt.Sprintf(`[{"id":%d,"name":"x"}]`, id), `Link: </plants?q=x&`+after+`>; rel="next"`)
	}
	last := reply(200, `[]`)
	for what, test := range map[string]struct {
		steps    steps
		returned string
		fails    bool
		requests int32
	}{
		"to a plant": {steps{empty("after=10"), empty("after=20"), plant(21, "after=30"), last}, "[21]", false, 4},
		"after a plant": {steps{plant(1, "after=10"), empty("after=20"), plant(25, "after=25"), last},
			"[1 25]", false, 4},
		"from the smallest id":                {steps{empty("after=-9223372036854775808"), last}, "[]", false, 2},
		"the same link":                       {steps{empty("after=10"), empty("after=10")}, "[]", true, 2},
		"a link back":                         {steps{empty("after=10"), empty("after=9")}, "[]", true, 2},
		"a link to a plant that was returned": {steps{plant(5, "after=5"), empty("after=5")}, "[5]", true, 2},
		"no id":                               {steps{empty("cursor=1")}, "[]", true, 1},
		"not an id":                           {steps{empty("after=x")}, "[]", true, 1},
		"not a query":                         {steps{empty("after=%zz")}, "[]", true, 1},
	} {
		c, s := start(t, test.steps...)
		returned, fails := []int64{}, false
		for p, err := range c.Plants(t.Context(), client.Page{Text: "x"}) {
			if err != nil {
				fails = true
				continue
			}
			returned = append(returned, p.ID)
		}
		if fmt.Sprint(returned) != test.returned || fails != test.fails {
			t.Errorf("%s: plants %v, an error %v; want %s, %v", what, returned, fails, test.returned, test.fails)
		}
		s.wantRequests(t, test.requests)
	}
}

func TestExactIDs(t *testing.T) {
	c, _ := start(t, reply(200, `[{"id":-9223372036854775808,"name":"a"},{"id":9007199254740993,"name":"b","tag":""},`+
		`{"id":9223372036854775807,"name":"c","tag":"t"}]`))
	var got []string
	for p, err := range c.Plants(t.Context(), client.Page{}) {
		if err != nil {
			t.Fatal(err)
		}
		tag := "none"
		if p.Tag != nil {
			tag = fmt.Sprintf("%q", *p.Tag)
		}
		got = append(got, fmt.Sprint(p.ID, " ", tag))
	}
	const want = `[-9223372036854775808 none 9007199254740993 "" 9223372036854775807 "t"]`
	if got := fmt.Sprint(got); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
