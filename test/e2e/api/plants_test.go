package api

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

func TestReadReplaceRemove(t *testing.T) {
	t.Parallel()
	all := testkit.StartOnEachEngine(t)
	all.Create(t, `{"id":7,"name":"Fern","tag":"shade"}`)
	got := all.Do(t, "GET", "/plants/7", "")
	testkit.WantResponse(t, "read", got, 200, `{"id":7,"name":"Fern","tag":"shade"}`)
	seen := got.Header.Get("ETag")
	if a := all.Do(t, "GET", "/plants/7", "", "If-None-Match: "+seen); a.Status != 304 || a.Body != "" {
		t.Errorf("a read with a matching If-None-Match: %d %s", a.Status, a.Body)
	}
	testkit.WantError(t, "read an absent plant", all.Do(t, "GET", "/plants/8", ""), 40401)
	testkit.WantError(t, "read plant 01", all.Do(t, "GET", "/plants/01", ""), 40025)

	replaced := all.Do(t, "PUT", "/plants/7", `{"name":"Ivy"}`, testkit.ContentJSON, "If-Match: "+seen)
	testkit.WantResponse(t, "replace", replaced, 200, `{"id":7,"name":"Ivy"}`)
	again := all.Do(t, "PUT", "/plants/7", `{"name":"Ivy"}`, testkit.ContentJSON)
	testkit.WantResponse(t, "replace again", again, 200, `{"id":7,"name":"Ivy"}`)
	if a, b := replaced.Header.Get("ETag"), all.Do(t, "GET", "/plants/7", "").Header.Get("ETag"); a != b || a == seen ||
		a == "" {
		t.Errorf("the ETag was %s, a replace gives %s and a read %s", seen, a, b)
	}
	for _, test := range []struct {
		what, id, body, header string
		number                 int
	}{
		{"what has changed", "7", `{"name":"Oak"}`, "If-Match: " + seen, 41201},
		{"with a weak tag", "7", `{"name":"Oak"}`, "If-Match: W/" + again.Header.Get("ETag"), 41201},
		{"with a wrong tag", "7", `{"name":"Oak"}`, "If-Match: x", 40028},
		{"what must not exist", "7", `{"name":"Oak"}`, "If-None-Match: *", 41202},
		{"with another id", "7", `{"id":8,"name":"Oak"}`, "If-Match: *", 40032},
		{"an absent plant", "8", `{"name":"Oak"}`, "If-Match: *", 40401},
		{"an absent plant that was seen", "8", `{"name":"Oak"}`, "If-Match: " + seen, 40401},
		{"without a name", "7", `{"tag":"x"}`, "If-Match: *", 40011},
		{"without a content type", "7", `{"name":"x"}`, "Content-Type", 40018},
	} {
		a := all.Do(t, "PUT", "/plants/"+test.id, test.body, testkit.ContentJSON, test.header)
		testkit.WantError(t, "replace "+test.what, a, test.number)
	}
	testkit.WantResponse(t, "the plant is unchanged", all.Do(t, "GET", "/plants/7", ""), 200, `{"id":7,"name":"Ivy"}`)
	testkit.WantResponse(t, "replace any of several",
		all.Do(t, "PUT", "/plants/7", `{"name":"Ivy","tag":""}`, testkit.ContentJSON,
			`If-Match: "a", `+again.Header.Get("ETag")), 200, `{"id":7,"name":"Ivy","tag":""}`)

	testkit.WantError(t, "remove what has changed", all.Do(t, "DELETE", "/plants/7", "", "If-Match: "+seen), 41201)
	testkit.WantResponse(t, "remove", all.Do(t, "DELETE", "/plants/7", "", "If-Match: *"), 204, "")
	testkit.WantError(t, "remove again", all.Do(t, "DELETE", "/plants/7", ""), 40401)
	testkit.WantResponse(t, "create again", all.Create(t, `{"id":7,"name":"Elm"}`), 200, `{"name":"Elm"}`)
}

func TestList(t *testing.T) {
	t.Parallel()
	all := testkit.StartOnEachEngine(t)
	testkit.WantResponse(t, "an empty store", all.Do(t, "GET", "/plants", ""), 200, "[]")
	for _, id := range []int{5, -3, 0, 12, 7} {
		all.Create(t, fmt.Sprintf(`{"id":%d,"name":"p"}`, id))
	}
	want := `[{"id":-3,"name":"p"},{"id":0,"name":"p"}][{"id":5,"name":"p"},{"id":7,"name":"p"}][{"id":12,"name":"p"}]`
	if pages := walk(t, all, "/plants?limit=2"); pages != want {
		t.Errorf("the pages are %s, want %s", pages, want)
	}
	if a := all.Do(t, "GET", "/plants?limit=5", ""); a.Header.Get("Link") != "" {
		t.Errorf("a page that ends the list has Link: %s", a.Header.Get("Link"))
	}
	a := all.Do(t, "GET", "/plants?limit=1", "", "Prefer: count=exact")
	if a.Header.Get("Plants-Count") != "5" || a.Header.Get("Preference-Applied") != "count=exact" {
		t.Errorf("the count is %q, %q", a.Header.Get("Plants-Count"), a.Header.Get("Preference-Applied"))
	}
	for query, number := range map[string]int{
		"limit=0": 40026, "after=x": 40027, "limit=1&limit=2": 40029, "limit=%zz": 40029, "q=%ff": 40029, "tag=%00": 40029,
	} {
		testkit.WantError(t, query, all.Do(t, "GET", "/plants?"+query, ""), number)
	}
	testkit.WantResponse(t, "an unknown parameter", all.Do(t, "GET", "/plants?colour=green", ""), 400,
		`{"error":40033,"message":"the query parameter \"colour\" is unknown; use limit, after, tag or q"}`)
	testkit.WantError(t, "a remove with a parameter", all.Do(t, "DELETE", "/plants/7?dry_run=true", ""), 40033)
	if a := all.Do(t, "GET", "/plants?limit=99999999999999999999999999", ""); strings.Count(a.Body, `"id"`) != 5 {
		t.Errorf("a huge limit: %d %s", a.Status, a.Body)
	}
	testkit.WantResponse(t, "after the largest id", all.Do(t, "GET", "/plants?after=9223372036854775807", ""), 200,
		"[]")
}

// A search returns the same plants on every engine, whatever collation its database has.
func TestSearch(t *testing.T) {
	t.Parallel()
	all := testkit.StartOnEachEngine(t)
	for id, p := range []string{
		`"name":"Monstera deliciosa","tag":"climber"`, `"name":"Fern","tag":"Shade"`, `"name":"STRAẞE"`,
		`"name":"300 \u212a","tag":""`, `"name":"İstanbul"`, `"name":"100% a_b\\c","tag":"climbe"`, `"name":"e\u0301"`,
	} {
		if a := all.Create(t, fmt.Sprintf(`{"id":%d,%s}`, id, p)); a.Status != 200 {
			t.Fatalf("create %s: %d %s", p, a.Status, a.Body)
		}
	}
	for query, want := range map[string]string{
		"tag=climber": "0", "tag=Climber": "", "tag=": "3", "q=CLIMB": "0 5", "q=CLIMB&tag=climber": "0", "q=shade": "1",
		"q=straße": "2", "q=strasse": "", "q=300+k": "3", "q=istanbul": "", "q=İST": "4", "q=%25": "5", "q=_": "5",
		"q=%5C": "5", "q='": "", "q=É": "", "q=E\u0301": "6", "q=e&limit=1": "0 1 2 5 6",
	} {
		ids := regexp.MustCompile(`"id":(\d+)`)
		var found []string
		for _, m := range ids.FindAllStringSubmatch(walk(t, all, "/plants?"+query), -1) {
			found = append(found, m[1])
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%s: plants %s, want %s", query, got, want)
		}
	}
	a := all.Do(t, "GET", "/plants?tag=climber", "", "Prefer: count=exact")
	if a.Header.Get("Plants-Count") != "" || a.Header.Get("Preference-Applied") != "" {
		t.Errorf("a search has the count %q", a.Header.Get("Plants-Count"))
	}
}

// walk follows the links from a path and returns all pages.
func walk(t *testing.T, all testkit.Servers, path string) (pages string) {
	t.Helper()
	for path != "" {
		a := all.Do(t, "GET", path, "")
		if a.Status != 200 {
			t.Fatalf("%s: %d %.200s", path, a.Status, a.Body)
		}
		pages += a.Body
		link := a.Header.Get("Link")
		path, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")
		if link != "" && !strings.HasSuffix(link, `>; rel="next"`) {
			t.Errorf("Link: %s", link)
		}
	}
	return pages
}
