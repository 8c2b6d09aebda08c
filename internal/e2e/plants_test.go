package e2e

import (
	"fmt"
	"strings"
	"testing"
)

func TestReadReplaceRemove(t *testing.T) {
	all := serveEverywhere(t)
	all.create(t, `{"id":7,"name":"Fern","tag":"shade"}`)
	got := all.ask(t, "GET", "/plants/7", "")
	wantAnswer(t, "read", got, 200, `{"id":7,"name":"Fern","tag":"shade"}`)
	seen := got.header.Get("ETag")
	if a := all.ask(t, "GET", "/plants/7", "", "If-None-Match: "+seen); a.status != 304 || a.body != "" {
		t.Errorf("a read of what is known: %d %s", a.status, a.body)
	}
	wantFailure(t, "read an absent plant", all.ask(t, "GET", "/plants/8", ""), 40401)
	for _, id := range []string{"x", "1.0", "+1", "01", "-0", "9223372036854775808", "%00", "0x1"} {
		wantFailure(t, "read plant "+id, all.ask(t, "GET", "/plants/"+id, ""), 40025)
	}

	replaced := all.ask(t, "PUT", "/plants/7", `{"name":"Ivy"}`, asJSON, "If-Match: "+seen)
	wantAnswer(t, "replace", replaced, 200, `{"id":7,"name":"Ivy"}`)
	again := all.ask(t, "PUT", "/plants/7", `{"name":"Ivy"}`, asJSON)
	wantAnswer(t, "replace again", again, 200, `{"id":7,"name":"Ivy"}`)
	if a, b := replaced.header.Get("ETag"), all.ask(t, "GET", "/plants/7", "").header.Get("ETag"); a != b || a == seen || a == "" {
		t.Errorf("the ETag was %s, a replace gives %s and a read %s", seen, a, b)
	}
	wantFailure(t, "replace what has changed", all.ask(t, "PUT", "/plants/7", `{"name":"Oak"}`, asJSON, "If-Match: "+seen), 41201)
	wantFailure(t, "replace with a weak tag", all.ask(t, "PUT", "/plants/7", `{"name":"Oak"}`, asJSON, "If-Match: W/"+again.header.Get("ETag")), 41201)
	wantFailure(t, "replace with a wrong tag", all.ask(t, "PUT", "/plants/7", `{"name":"Oak"}`, asJSON, "If-Match: x"), 40028)
	wantFailure(t, "replace an absent plant", all.ask(t, "PUT", "/plants/8", `{"name":"Oak"}`, asJSON), 40401)
	wantFailure(t, "replace an absent plant that was seen", all.ask(t, "PUT", "/plants/8", `{"name":"Oak"}`, asJSON, "If-Match: "+seen), 40401)
	wantFailure(t, "replace without a name", all.ask(t, "PUT", "/plants/7", `{"tag":"x"}`, asJSON), 40011)
	wantFailure(t, "replace without a content type", all.ask(t, "PUT", "/plants/7", `{"name":"x"}`), 40018)
	wantAnswer(t, "nothing of that happened", all.ask(t, "GET", "/plants/7", ""), 200, `{"id":7,"name":"Ivy"}`)
	wantAnswer(t, "replace any of several", all.ask(t, "PUT", "/plants/7", `{"name":"Ivy","tag":""}`, asJSON, `If-Match: "a", `+again.header.Get("ETag")), 200, `{"id":7,"name":"Ivy","tag":""}`)

	wantFailure(t, "remove what has changed", all.ask(t, "DELETE", "/plants/7", "", "If-Match: "+seen), 41201)
	wantAnswer(t, "remove", all.ask(t, "DELETE", "/plants/7", "", "If-Match: *"), 204, "")
	wantFailure(t, "remove again", all.ask(t, "DELETE", "/plants/7", ""), 40401)
	wantAnswer(t, "create again", all.create(t, `{"id":7,"name":"Elm"}`), 200, `{"name":"Elm"}`)
}

func TestList(t *testing.T) {
	all := serveEverywhere(t)
	wantAnswer(t, "an empty store", all.ask(t, "GET", "/plants", ""), 200, "[]")
	for _, id := range []int{5, -3, 0, 12, 7} {
		all.create(t, fmt.Sprintf(`{"id":%d,"name":"p"}`, id))
	}
	path, pages := "/plants?limit=2", ""
	for path != "" {
		a := all.ask(t, "GET", path, "")
		pages += a.body
		link := a.header.Get("Link")
		path, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")
		if link != "" && !strings.HasSuffix(link, `>; rel="next"`) {
			t.Errorf("Link: %s", link)
		}
	}
	want := `[{"id":-3,"name":"p"},{"id":0,"name":"p"}][{"id":5,"name":"p"},{"id":7,"name":"p"}][{"id":12,"name":"p"}]`
	if pages != want {
		t.Errorf("the pages are %s, want %s", pages, want)
	}
	if a := all.ask(t, "GET", "/plants?limit=5", ""); a.header.Get("Link") != "" {
		t.Errorf("a page that ends the list has Link: %s", a.header.Get("Link"))
	}
	a := all.ask(t, "GET", "/plants?limit=1&other=x", "", "Prefer: count=exact")
	if a.header.Get("Plants-Count") != "5" || a.header.Get("Preference-Applied") != "count=exact" {
		t.Errorf("the count is %q, %q", a.header.Get("Plants-Count"), a.header.Get("Preference-Applied"))
	}
	for query, number := range map[string]int{
		"limit=0": 40026, "limit=1001": 40026, "limit=-1": 40026, "limit=x": 40026, "limit=": 40026, "limit=1.5": 40026, "limit=99999999999999999999": 40026,
		"after=x": 40027, "after=": 40027, "after=9223372036854775808": 40027, "limit=1&limit=2": 40029, "limit=%zz": 40029, "after=1;limit=2": 40029,
	} {
		wantFailure(t, query, all.ask(t, "GET", "/plants?"+query, ""), number)
	}
	wantAnswer(t, "after the last id of all", all.ask(t, "GET", "/plants?after=9223372036854775807", ""), 200, "[]")
}

// What a page can make the service hold is bounded: large plants make a page end early, and
// following the links still meets every plant once.
func TestListOfLargePlants(t *testing.T) {
	all := serveEverywhere(t)
	const plants = 20
	name := strings.Repeat("x", 60_000)
	for id := range plants {
		all.create(t, fmt.Sprintf(`{"id":%d,"name":%q}`, id, name))
	}
	pages, met := 0, ""
	for path := "/plants?limit=1000"; path != ""; pages++ {
		a := all.ask(t, "GET", path, "")
		if len(a.body) > 256<<10+64<<10 {
			t.Errorf("a page of %d bytes", len(a.body))
		}
		for _, part := range strings.Split(a.body, `{"id":`)[1:] {
			id, _, _ := strings.Cut(part, ",")
			met += id + " "
		}
		path, _, _ = strings.Cut(strings.TrimPrefix(a.header.Get("Link"), "<"), ">")
	}
	want := ""
	for id := range plants {
		want += fmt.Sprint(id, " ")
	}
	if met != want || pages != 4 {
		t.Errorf("%d pages with %s, want 4 with %s", pages, met, want)
	}
}

func TestCORS(t *testing.T) {
	p := serve(t, engines[0].database(t))
	page := "Origin: https://docs.example"
	a := p.ask(t, "POST", "/plants", `{"id":1,"name":"x"}`, asJSON, page)
	if a.status != 200 || a.header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "WWW-Authenticate") {
		t.Errorf("a create from a page: %d %v", a.status, a.header)
	}
	if a := p.ask(t, "POST", "/plants", `{`, asJSON, page, "Authorization"); a.status != 401 || a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("an error is hidden from the page: %d %v", a.status, a.header)
	}
	if a := p.ask(t, "GET", "/plants", ""); a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("headers for a page without a page: %v", a.header)
	}
	preflight := "OPTIONS %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: https://docs.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n"
	response := p.raw(t, fmt.Sprintf(preflight, "/plants/1"))
	for _, want := range []string{"HTTP/1.1 204 ", "Access-Control-Allow-Methods: DELETE, GET, HEAD, PUT\r\n", "Access-Control-Allow-Origin: *\r\n"} {
		if !strings.Contains(response, want) {
			t.Errorf("a preflight has no %q:\n%s", want, response)
		}
	}
	for _, header := range []string{"Authorization", "Content-Type", "If-Match", "Prefer"} {
		if !strings.Contains(response, header) {
			t.Errorf("a preflight does not allow %s:\n%s", header, response)
		}
	}
	if response := p.raw(t, fmt.Sprintf(preflight, "/nowhere")); !strings.Contains(response, "40402") {
		t.Errorf("a preflight of no path:\n%s", response)
	}
	if strings.Contains(response, "Allow-Credentials") || strings.Contains(response, "Set-Cookie") {
		t.Errorf("a preflight with credentials:\n%s", response)
	}

	p = serve(t, engines[0].database(t), "--cors-origins", "https://a.example, http://b.example:81")
	for origin, want := range map[string]string{"https://a.example": "https://a.example", "http://b.example:81": "http://b.example:81", "https://docs.example": "", "null": ""} {
		a := p.ask(t, "GET", "/plants", "", "Origin: "+origin)
		if a.header.Get("Access-Control-Allow-Origin") != want || a.header.Get("Vary") != "Origin" {
			t.Errorf("%s: %v", origin, a.header)
		}
	}
	p = serve(t, engines[0].database(t), "--cors-origins", "off")
	if a := p.ask(t, "GET", "/plants", "", page); a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("--cors-origins off: %v", a.header)
	}
}
