package api

import (
	"fmt"
	"strings"
	"testing"

	"plantstore/internal/testkit"
)

func TestReadReplaceRemove(t *testing.T) {
	all := testkit.StartOnEachEngine(t)
	all.Create(t, `{"id":7,"name":"Fern","tag":"shade"}`)
	got := all.Do(t, "GET", "/plants/7", "")
	testkit.WantResponse(t, "read", got, 200, `{"id":7,"name":"Fern","tag":"shade"}`)
	seen := got.Header.Get("ETag")
	if a := all.Do(t, "GET", "/plants/7", "", "If-None-Match: "+seen); a.Status != 304 || a.Body != "" {
		t.Errorf("a read with a matching If-None-Match: %d %s", a.Status, a.Body)
	}
	testkit.WantError(t, "read an absent plant", all.Do(t, "GET", "/plants/8", ""), 40401)
	for _, id := range []string{"x", "1.0", "+1", "01", "-0", "9223372036854775808", "%00", "0x1"} {
		testkit.WantError(t, "read plant "+id, all.Do(t, "GET", "/plants/"+id, ""), 40025)
	}

	replaced := all.Do(t, "PUT", "/plants/7", `{"name":"Ivy"}`, testkit.ContentJSON, "If-Match: "+seen)
	testkit.WantResponse(t, "replace", replaced, 200, `{"id":7,"name":"Ivy"}`)
	again := all.Do(t, "PUT", "/plants/7", `{"name":"Ivy"}`, testkit.ContentJSON)
	testkit.WantResponse(t, "replace again", again, 200, `{"id":7,"name":"Ivy"}`)
	if a, b := replaced.Header.Get("ETag"), all.Do(t, "GET", "/plants/7", "").Header.Get("ETag"); a != b || a == seen ||
		a == "" {
		t.Errorf("the ETag was %s, a replace gives %s and a read %s", seen, a, b)
	}
	testkit.WantError(t, "replace what has changed",
		all.Do(t, "PUT", "/plants/7", `{"name":"Oak"}`, testkit.ContentJSON, "If-Match: "+seen), 41201)
	testkit.WantError(t, "replace with a weak tag",
		all.Do(t, "PUT", "/plants/7", `{"name":"Oak"}`, testkit.ContentJSON, "If-Match: W/"+again.Header.Get("ETag")), 41201)
	testkit.WantError(t, "replace with a wrong tag",
		all.Do(t, "PUT", "/plants/7", `{"name":"Oak"}`, testkit.ContentJSON, "If-Match: x"), 40028)
	testkit.WantError(t, "replace an absent plant", all.Do(t, "PUT", "/plants/8", `{"name":"Oak"}`, testkit.ContentJSON),
		40401)
	testkit.WantError(t, "replace an absent plant that was seen",
		all.Do(t, "PUT", "/plants/8", `{"name":"Oak"}`, testkit.ContentJSON, "If-Match: "+seen), 40401)
	testkit.WantError(t, "replace without a name", all.Do(t, "PUT", "/plants/7", `{"tag":"x"}`, testkit.ContentJSON),
		40011)
	testkit.WantError(t, "replace without a content type", all.Do(t, "PUT", "/plants/7", `{"name":"x"}`), 40018)
	testkit.WantResponse(t, "the plant is unchanged", all.Do(t, "GET", "/plants/7", ""), 200, `{"id":7,"name":"Ivy"}`)
	testkit.WantResponse(t, "replace any of several",
		all.Do(t, "PUT", "/plants/7", `{"name":"Ivy","tag":""}`, testkit.ContentJSON,
			`If-Match: "a", `+again.Header.Get("ETag")), 200, `{"id":7,"name":"Ivy","tag":""}`)

	testkit.WantError(t, "remove what has changed", all.Do(t, "DELETE", "/plants/7", "", "If-Match: "+seen), 41201)
	testkit.WantResponse(t, "remove", all.Do(t, "DELETE", "/plants/7", "", "If-Match: *"), 204, "")
	testkit.WantError(t, "remove again", all.Do(t, "DELETE", "/plants/7", ""), 40401)
	testkit.WantResponse(t, "create again", all.Create(t, `{"id":7,"name":"Elm"}`), 200, `{"name":"Elm"}`)
}

// No precondition is ignored: an empty or malformed one is refused, and the others are compared as RFC 9110 defines.
func TestPreconditions(t *testing.T) {
	all := testkit.StartOnEachEngine(t)
	all.Create(t, `{"id":7,"name":"Fern"}`)
	seen := all.Do(t, "GET", "/plants/7", "").Header.Get("ETag")
	for _, test := range []struct {
		headers []string
		number  int
	}{
		{[]string{"If-Match: "}, 40031},
		{[]string{"If-Match: ,"}, 40031},
		{[]string{"If-Match: *, *"}, 40028},
		{[]string{"If-Match: " + seen + ` "x"`}, 40028},
		{[]string{`If-Match: "a,b"`}, 41201},
		{[]string{`If-Match: "a,` + seen[1:]}, 41201},
		{[]string{"If-None-Match: *"}, 41202},
		{[]string{"If-None-Match: *", "If-Match: " + seen}, 41202},
		{[]string{"If-None-Match: W/" + seen}, 41202},
		{[]string{"If-None-Match: "}, 40031},
		{[]string{"If-None-Match: x"}, 40028},
	} {
		what := fmt.Sprintf("with %q", test.headers)
		replace := all.Do(t, "PUT", "/plants/7", `{"name":"Oak"}`, append(test.headers, testkit.ContentJSON)...)
		testkit.WantError(t, "replace "+what, replace, test.number)
		testkit.WantError(t, "remove "+what, all.Do(t, "DELETE", "/plants/7", "", test.headers...), test.number)
	}
	for body, number := range map[string]int{
		`{"id":8,"name":"Oak"}`: 40032, `{"id":-7,"name":"Oak"}`: 40032, `{"id":"7","name":"Oak"}`: 40013,
		`{"id":null,"name":"Oak"}`: 40012, `{"id":1e99,"name":"Oak"}`: 40014,
	} {
		testkit.WantError(t, body, all.Do(t, "PUT", "/plants/7", body, testkit.ContentJSON), number)
	}
	absent := all.Do(t, "PUT", "/plants/8", `{"name":"Oak"}`, testkit.ContentJSON, "If-None-Match: *")
	testkit.WantError(t, "replace an absent plant with If-None-Match", absent, 40401)
	testkit.WantResponse(t, "the plant is unchanged", all.Do(t, "GET", "/plants/7", ""), 200, `{"id":7,"name":"Fern"}`)
	testkit.WantResponse(t, "replace with the id of the path",
		all.Do(t, "PUT", "/plants/7", `{"id":7.0,"name":"Ivy"}`, testkit.ContentJSON, `If-None-Match: "a,b"`,
			`If-Match: W/"x",,"a,b" , `+seen), 200, `{"id":7,"name":"Ivy"}`)
}

func TestList(t *testing.T) {
	all := testkit.StartOnEachEngine(t)
	testkit.WantResponse(t, "an empty store", all.Do(t, "GET", "/plants", ""), 200, "[]")
	for _, id := range []int{5, -3, 0, 12, 7} {
		all.Create(t, fmt.Sprintf(`{"id":%d,"name":"p"}`, id))
	}
	path, pages := "/plants?limit=2", ""
	for path != "" {
		a := all.Do(t, "GET", path, "")
		pages += a.Body
		link := a.Header.Get("Link")
		path, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")
		if link != "" && !strings.HasSuffix(link, `>; rel="next"`) {
			t.Errorf("Link: %s", link)
		}
	}
	want := `[{"id":-3,"name":"p"},{"id":0,"name":"p"}][{"id":5,"name":"p"},{"id":7,"name":"p"}][{"id":12,"name":"p"}]`
	if pages != want {
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
		"limit=0": 40026, "limit=-1": 40026, "limit=x": 40026, "limit=": 40026, "limit=1.5": 40026, "limit=01": 40026,
		"limit=-99999999999999999999": 40026, "after=x": 40027, "after=": 40027, "after=9223372036854775808": 40027,
		"limit=1&limit=2": 40029, "limit=%zz": 40029, "after=1;limit=2": 40029, "q=%ff": 40029, "tag=%00": 40029,
		"tag=a&tag=b": 40029, "colour=green": 40033, "limit=1&Tag=x": 40033, "other": 40033,
	} {
		testkit.WantError(t, query, all.Do(t, "GET", "/plants?"+query, ""), number)
	}
	testkit.WantResponse(t, "an unknown parameter", all.Do(t, "GET", "/plants?colour=green", ""), 400,
		`{"error":40033,"message":"the query parameter \"colour\" is unknown; use limit, after, tag or q"}`)
	testkit.WantError(t, "a remove with a parameter", all.Do(t, "DELETE", "/plants/7?dry_run=true", ""), 40033)
	for _, limit := range []string{"5", "1000", "1001", "9223372036854775808", "99999999999999999999999999"} {
		a := all.Do(t, "GET", "/plants?limit="+limit, "")
		if strings.Count(a.Body, `"id"`) != 5 || a.Header.Get("Link") != "" {
			t.Errorf("limit=%s: %d %s, Link: %s", limit, a.Status, a.Body, a.Header.Get("Link"))
		}
	}
	testkit.WantResponse(t, "after the largest id", all.Do(t, "GET", "/plants?after=9223372036854775807", ""), 200,
		"[]")
}

// The size of a page is bounded: with large plants it ends early, and following the links returns every plant once.
func TestListOfLargePlants(t *testing.T) {
	all := testkit.StartOnEachEngine(t)
	const plants = 20
	name := strings.Repeat("x", 60_000)
	for id := range plants {
		all.Create(t, fmt.Sprintf(`{"id":%d,"name":%q}`, id, name))
	}
	pages, ids := 0, ""
	for path := "/plants?limit=1000"; path != ""; pages++ {
		a := all.Do(t, "GET", path, "")
		if len(a.Body) > 256<<10+64<<10 {
			t.Errorf("a page of %d bytes", len(a.Body))
		}
		for _, part := range strings.Split(a.Body, `{"id":`)[1:] {
			id, _, _ := strings.Cut(part, ",")
			ids += id + " "
		}
		path, _, _ = strings.Cut(strings.TrimPrefix(a.Header.Get("Link"), "<"), ">")
	}
	want := ""
	for id := range plants {
		want += fmt.Sprint(id, " ")
	}
	if ids != want || pages != 4 {
		t.Errorf("%d pages with %s, want 4 with %s", pages, ids, want)
	}
}

func TestCORS(t *testing.T) {
	p := testkit.Start(t, testkit.Engines[0].Database(t))
	page := "Origin: https://docs.example"
	a := p.Do(t, "POST", "/plants", `{"id":1,"name":"x"}`, testkit.ContentJSON, page)
	if a.Status != 200 || a.Header.Get("Access-Control-Allow-Origin") != "*" ||
		!strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), "WWW-Authenticate") {
		t.Errorf("a create from a page: %d %v", a.Status, a.Header)
	}
	if a := p.Do(t, "POST", "/plants", `{`, testkit.ContentJSON, page, "Authorization"); a.Status != 401 ||
		a.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("a page cannot read an error: %d %v", a.Status, a.Header)
	}
	if a := p.Do(t, "GET", "/plants", ""); a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("CORS headers without an Origin: %v", a.Header)
	}
	preflight := "OPTIONS %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
		"Origin: https://docs.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n"
	response := p.Raw(t, fmt.Sprintf(preflight, "/plants/1"))
	for _, want := range []string{"HTTP/1.1 204 ", "Access-Control-Allow-Methods: DELETE, GET, HEAD, PUT\r\n",
		"Access-Control-Allow-Origin: *\r\n"} {
		if !strings.Contains(response, want) {
			t.Errorf("a preflight has no %q:\n%s", want, response)
		}
	}
	for _, header := range []string{"Authorization", "Content-Type", "If-Match", "Prefer"} {
		if !strings.Contains(response, header) {
			t.Errorf("a preflight does not allow %s:\n%s", header, response)
		}
	}
	if response := p.Raw(t, fmt.Sprintf(preflight, "/nowhere")); !strings.Contains(response, "40402") {
		t.Errorf("a preflight of no path:\n%s", response)
	}
	if strings.Contains(response, "Allow-Credentials") || strings.Contains(response, "Set-Cookie") {
		t.Errorf("a preflight with credentials:\n%s", response)
	}

	p = testkit.Start(t, testkit.Engines[0].Database(t), "--cors-origins", "https://a.example, http://b.example:81")
	for origin, want := range map[string]string{"https://a.example": "https://a.example",
		"http://b.example:81": "http://b.example:81", "https://docs.example": "", "null": ""} {
		a := p.Do(t, "GET", "/plants", "", "Origin: "+origin)
		if a.Header.Get("Access-Control-Allow-Origin") != want || a.Header.Get("Vary") != "Origin" {
			t.Errorf("%s: %v", origin, a.Header)
		}
	}
	p = testkit.Start(t, testkit.Engines[0].Database(t), "--cors-origins", "off")
	if a := p.Do(t, "GET", "/plants", "", page); a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("--cors-origins off: %v", a.Header)
	}
}
