package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"plantstore/api"
	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

const (
	mustBeInt64 = "must be an integer from -9223372036854775808 to 9223372036854775807, " +
		"without a plus sign or leading zeros"

	fern     = `{"name":"Fern","tag":"shade"}`
	fernETag = `"wOJdJiGiZp7nhVH3"`
)

func ferns(ids ...int64) *fakeStorage {
	s := &fakeStorage{plants: map[int64]plant.Content{}, outcome: plant.Created, fail: map[string]error{}}
	for _, id := range ids {
		s.plants[id] = plant.Content{Name: "Fern", Tag: new("shade")}
	}
	return s
}

func TestCreate(t *testing.T) {
	failed := string(appendError(nil, 50001, errInternal.Error(), ""))
	for outcome, want := range map[plant.Outcome]struct {
		status int
		body   string
	}{
		plant.Created: {200, fern},
		plant.Same:    {200, fern},
		plant.Taken: {400,
			`{"error":40009,"message":"id -7 already belongs to a plant with a different name or tag","field":"id"}`},
		0:                 {500, failed},
		plant.Changed + 1: {500, failed},
	} {
		s := ferns()
		s.outcome = outcome
		w := send(newStorageAPI(s), "POST", "/plants", strings.NewReader(`{"id":-7,"name":"Fern","tag":"shade","x":1}`))
		wantResponse(t, w, want.status, want.body)
		wantCalls(t, s, `Create main {"id":-7,"name":"Fern","tag":"shade"}`)
	}
}

func TestGet(t *testing.T) {
	for _, test := range []struct {
		target, ifNoneMatch string
		status              int
		body                string
	}{
		{"/plants/7", "", 200, `{"id":7,` + fern[1:]},
		{"/plants/7", fernETag, 304, ""},
		{"/plants/7", "W/" + fernETag, 304, ""},
		{"/plants/7", `"other", ` + fernETag, 304, ""},
		{"/plants/7", "*", 304, ""},
		{"/plants/7", `"other"`, 200, `{"id":7,` + fern[1:]},
		{"/plants/7", strings.ToLower(fernETag), 200, `{"id":7,` + fern[1:]},
		{"/plants/7", "not a tag, " + fernETag, 200, `{"id":7,` + fern[1:]}, // an invalid list matches nothing
		{"/plants/7", "*, " + fernETag, 200, `{"id":7,` + fern[1:]},
		{"/plants/7", ",", 200, `{"id":7,` + fern[1:]},
	} {
		headers := []string{"If-None-Match", test.ifNoneMatch}
		if test.ifNoneMatch == "" {
			headers = nil
		}
		w := send(newStorageAPI(ferns(7)), "GET", test.target, nil, headers...)
		wantResponse(t, w, test.status, test.body)
		wantHeaders(t, w, "ETag", fernETag)
	}
	wantError(t, send(newStorageAPI(ferns(7)), "GET", "/plants/8", nil), 40401, "plant 8 does not exist")
}

func TestPathID(t *testing.T) {
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		for _, id := range []string{"x", "01", "+1", "1.0", "9223372036854775808", strings.Repeat("9", 40)} {
			s := ferns(1)
			w := send(newStorageAPI(s), method, "/plants/"+id, strings.NewReader(fern))
			wantError(t, w, 40025, fmt.Sprintf("id in the path %s, but is %.32q", mustBeInt64, id))
			wantCalls(t, s)
		}
	}
	for _, id := range []string{"9223372036854775807", "-9223372036854775808"} {
		s := ferns()
		wantError(t, send(newStorageAPI(s), "GET", "/plants/"+id, nil), 40401, "plant "+id+" does not exist")
		wantCalls(t, s, "Get main "+id)
	}
}

func TestReplace(t *testing.T) {
	for _, test := range []struct {
		body   string
		number int // 0 for success
		want   string
		call   string
	}{
		{`{"name":"Ivy"}`, 0, `{"id":7,"name":"Ivy"}`, `Replace main 7 {"name":"Ivy"} any`},
		{`{"id":7,"name":"Ivy"}`, 0, `{"id":7,"name":"Ivy"}`, `Replace main 7 {"name":"Ivy"} any`},
		{`{"id":8,"name":"Ivy"}`, 40032, "id must be absent or 7, the id in the path, but is 8", ""},
		{`{"id":7}`, 40011, "name is required and must be a string", ""},
	} {
		s := ferns(7)
		w := send(newStorageAPI(s), "PUT", "/plants/7", strings.NewReader(test.body))
		if test.number != 0 {
			wantError(t, w, test.number, test.want)
		} else {
			wantResponse(t, w, 200, test.want)
			wantHeaders(t, w, "ETag", etag(plant.Content{Name: "Ivy"}))
		}
		if got := strings.Join(s.calls, "|"); got != test.call {
			t.Errorf("a replace with %s calls %s, want %s", test.body, got, test.call)
		}
	}
}

func TestRemove(t *testing.T) {
	s := ferns(7)
	wantResponse(t, send(newStorageAPI(s), "DELETE", "/plants/7", nil), 204, "")
	wantCalls(t, s, "Remove main 7 any")
}

// An edit with If-Match reads the plant, and lets the storage change only that one.
func TestPrecondition(t *testing.T) {
	const changed = "plant 7 does not match If-Match; read it again before you change it"
	const list = `If-Match must be * or a list of entity tags such as "x", but has `
	const empty = "If-Match is empty; send the ETag of the plant, or omit the header"
	seen := "Remove main 7 " + fern
	for _, test := range []struct {
		ifMatch []string
		number  int // 0 for success
		message string
		calls   []string
	}{
		{[]string{fernETag}, 0, "", []string{"Get main 7", seen}},
		{[]string{` "x" , ` + fernETag + ","}, 0, "", []string{"Get main 7", seen}},
		{[]string{`"x"`, fernETag}, 0, "", []string{"Get main 7", seen}},
		{[]string{"W/\"x\"\t,\t,, " + fernETag}, 0, "", []string{"Get main 7", seen}},
		{[]string{`"x`, `y",` + fernETag}, 0, "", []string{"Get main 7", seen}}, // one tag, "x,y", and the ETag
		{nil, 0, "", []string{"Remove main 7 any"}},
		{[]string{"*"}, 0, "", []string{"Remove main 7 any"}},
		{[]string{""}, 40031, empty, nil},
		{[]string{","}, 40031, empty, nil},
		{[]string{"", " ,\t,"}, 40031, empty, nil},
		{[]string{strings.ToLower(fernETag)}, 41201, changed, []string{"Get main 7"}},
		{[]string{strings.ToUpper(fernETag)}, 41201, changed, []string{"Get main 7"}},
		{[]string{"W/" + fernETag}, 41201, changed, []string{"Get main 7"}}, // If-Match compares strongly
		{[]string{`""`}, 41201, changed, []string{"Get main 7"}},
		{[]string{`"x"`}, 41201, changed, []string{"Get main 7"}},
		{[]string{`"a,b"`}, 41201, changed, []string{"Get main 7"}},
		{[]string{"\"!#~\x80\xff\""}, 41201, changed, []string{"Get main 7"}},
		{[]string{`"` + `x,` + fernETag[1:]}, 41201, changed, []string{"Get main 7"}}, // a comma does not end a tag
		{[]string{`w/"x"`}, 40028, list + `"w/\"x\""`, nil},
		{[]string{`W/ "x"`}, 40028, list + `"W/ \"x\""`, nil},
		{[]string{`"x" "y"`}, 40028, list + `"\"x\" \"y\""`, nil},
		{[]string{`"x""y"`}, 40028, list + `"\"x\"\"y\""`, nil},
		{[]string{`"a b"`}, 40028, list + `"\"a b\""`, nil},
		{[]string{"\"\x7f\""}, 40028, list + `"\"\x7f\""`, nil},
		{[]string{`*, "x"`}, 40028, list + `"*, \"x\""`, nil},
		{[]string{"*", "*"}, 40028, list + `"*,*"`, nil},
		{[]string{`"`}, 40028, list + `"\""`, nil},
		{[]string{`W/"`}, 40028, list + `"W/\""`, nil},
		{[]string{`"x`}, 40028, list + `"\"x"`, nil},
		{[]string{`x"`}, 40028, list + `"x\""`, nil},
		{[]string{fernETag + ", x"}, 40028, list + `"x"`, nil},
		{[]string{strings.Repeat("y", 65)}, 40028, list + `"` + strings.Repeat("y", 64) + `"`, nil},
	} {
		allowed := test.ifMatch == nil || describedTags(t).MatchString(latin1(strings.Join(test.ifMatch, ",")))
		if malformed := test.number/100 == 400; allowed == malformed {
			t.Errorf("If-Match %q is allowed by the description: %v, and returns error %d", test.ifMatch, allowed, test.number)
		}
		headers := []string{}
		for _, value := range test.ifMatch {
			headers = append(headers, "If-Match", value)
		}
		wantEdits(t, ferns(7), headers, test.number, test.message, test.calls...)
	}
}

// wantEdits sends a remove and a replace of plant 7 with preconditions. The calls are those of the remove.
func wantEdits(t *testing.T, s *fakeStorage, headers []string, number int, message string, calls ...string) {
	t.Helper()
	for method, success := range map[string]int{"DELETE": 204, "PUT": 200} {
		s.calls = nil
		w := send(newStorageAPI(s), method, "/plants/7", strings.NewReader(`{"name":"Ivy"}`), headers...)
		if number != 0 {
			wantError(t, w, number, message)
		} else if w.Code != success {
			t.Errorf("%s with %q: %d %s", method, headers, w.Code, w.Body)
		}
		want := strings.Join(calls, "|")
		if method == "PUT" {
			want = strings.ReplaceAll(want, "Remove main 7", `Replace main 7 {"name":"Ivy"}`)
		}
		if got := strings.Join(s.calls, "|"); got != want {
			t.Errorf("%s with %q calls %s, want %s", method, headers, got, want)
		}
	}
}

// describedTags returns the pattern of If-Match and If-None-Match in the published description.
func describedTags(t *testing.T) *regexp.Regexp {
	_, rest, _ := strings.Cut(string(api.Description("yaml", "", false)), "EntityTags:")
	_, rest, ok := strings.Cut(rest, "pattern: '")
	pattern, _, closed := strings.Cut(rest, "'\n")
	if !ok || !closed {
		t.Fatal("the description has no pattern of EntityTags")
	}
	return regexp.MustCompile(pattern)
}

// latin1 decodes a header value as Latin-1: one character for each byte.
func latin1(value string) string {
	var b strings.Builder
	for i := range len(value) {
		b.WriteRune(rune(value[i]))
	}
	return b.String()
}

// An edit with If-None-Match changes a plant only if it has none of the tags.
func TestIfNoneMatch(t *testing.T) {
	const matches = "plant 7 matches If-None-Match; nothing was changed"
	const list = `If-None-Match must be * or a list of entity tags such as "x", but has "x"`
	for _, test := range []struct {
		headers []string
		stored  int64
		number  int // 0 for success
		message string
	}{
		{[]string{"If-None-Match", "*"}, 7, 41202, matches},
		{[]string{"If-None-Match", fernETag}, 7, 41202, matches},
		{[]string{"If-None-Match", `"x", W/` + fernETag}, 7, 41202, matches},
		{[]string{"If-None-Match", "*", "If-Match", fernETag}, 7, 41202, matches},
		{[]string{"If-None-Match", "*", "If-Match", "*"}, 7, 41202, matches},
		{[]string{"If-None-Match", "*", "If-Match", `"x"`}, 7, 41201,
			"plant 7 does not match If-Match; read it again before you change it"},
		{[]string{"If-None-Match", `"x"`}, 7, 0, ""},
		{[]string{"If-None-Match", `"x"`, "If-Match", fernETag}, 7, 0, ""},
		{[]string{"If-None-Match", "*"}, 8, 40401, "plant 7 does not exist"}, // an edit never creates
		{[]string{"If-None-Match", "x"}, 7, 40028, list},
		{[]string{"If-None-Match", ""}, 7, 40031, "If-None-Match is empty; send the ETag of the plant, or omit the header"},
	} {
		calls := []string{"Get main 7"}
		switch {
		case test.number == 0:
			calls = append(calls, "Remove main 7 "+fern)
		case test.number < 40100:
			calls = nil
		}
		wantEdits(t, ferns(test.stored), test.headers, test.number, test.message, calls...)
	}
}

// A precondition on an absent plant is 404, and the storage decides when the plant changes in between.
func TestPreconditionRaces(t *testing.T) {
	for _, tags := range []string{fernETag, "*"} {
		s := ferns()
		s.fail["Remove 1"] = plant.ErrNotFound
		w := send(newStorageAPI(s), "DELETE", "/plants/7", nil, "If-Match", tags)
		wantError(t, w, 40401, "plant 7 does not exist")
	}
	for header, want := range map[string]struct {
		number  int
		message string
	}{
		"If-Match":      {41201, "plant 7 does not match If-Match; read it again before you change it"},
		"If-None-Match": {41202, "plant 7 changed while it was compared with If-None-Match; retry"},
	} {
		s := ferns(7)
		s.fail["Remove 1"] = plant.ErrChanged
		tag := map[string]string{"If-Match": fernETag, "If-None-Match": `"x"`}[header]
		wantError(t, send(newStorageAPI(s), "DELETE", "/plants/7", nil, header, tag), want.number, want.message)
	}
}

// Every error of the storage has its own response behind every handler. What happened inside is in the log and not
// in the response.
func TestStorageFailures(t *testing.T) {
	const inside = "SELECT secret FROM /var/lib"
	requests := []struct {
		method, target, body, call string
		headers                    []string
	}{
		{"POST", "/plants", `{"id":7,"name":"x"}`, "Create 1", nil},
		{"GET", "/plants/7", "", "Get 1", nil},
		{"GET", "/plants", "", "List 1", nil},
		{"GET", "/plants", "", "List 2", nil},
		{"GET", "/plants?q=nothing", "", "List 2", nil},
		{"GET", "/plants", "", "Count 1", []string{"Prefer", "count=exact"}},
		{"PUT", "/plants/7", fern, "Replace 1", nil},
		{"PUT", "/plants/7", fern, "Get 1", []string{"If-Match", fernETag}},
		{"DELETE", "/plants/7", "", "Remove 1", nil},
		{"DELETE", "/plants/7", "", "Get 1", []string{"If-Match", fernETag}},
		{"PUT", "/plants/7", fern, "Get 1", []string{"If-None-Match", "*"}},
	}
	const failed = "the service failed; report the X-Request-Id of this response to its operator"
	for _, test := range []struct {
		err     error
		number  int
		message string
	}{
		{storage.ErrBusy, 50301, "too many writes are waiting"},
		{storage.ErrUnknown, 50302, "the outcome is unknown"},
		{storage.ErrUnavailable, 50303, "the database is unavailable"},
		{storage.ErrFull, 50304, "the disk of the database is full"},
		{storage.ErrStopping, 50305, "the service is stopping"},
		{context.DeadlineExceeded, 50303, "the database is unavailable"},
		{fmt.Errorf("%w: %w", storage.ErrUnknown, context.Canceled), 50302, "the outcome is unknown"},
		{fmt.Errorf("%w: %w", storage.ErrUnknown, storage.ErrFull), 50302, "the outcome is unknown"},
		{fmt.Errorf("%w: %w", storage.ErrUnknown, storage.ErrUnavailable), 50302, "the outcome is unknown"},
		{errors.New("something else"), 50001, failed},
	} {
		for _, r := range requests {
			if r.call == "Count 1" && test.err == storage.ErrBusy {
				continue // not a failure: see TestBusyCount
			}
			s := ferns(7)
			if r.call == "List 2" { // follows a list that ends early
				s.plants[7] = plant.Content{Name: strings.Repeat("n", storage.PageBytes)}
			}
			s.fail[r.call] = fmt.Errorf("%s: %w", inside, test.err)
			a, log := newAPI(Config{}, Dependencies{Create: s.Create, Edit: s.Edit, Reader: s})
			var body io.Reader
			if r.body != "" {
				body = strings.NewReader(r.body)
			}
			w := send(a, r.method, r.target, body, r.headers...)
			wantError(t, w, test.number, test.message)
			wantHeaders(t, w, "ETag", "", "Plants-Count", "")
			if got, want := strings.Contains(log.String(), inside), test.number >= 50000; got != want {
				t.Errorf("%s %s with %v is in the log: %v, want %v: %s", r.method, r.target, test.err, got, want, log)
			}
		}
	}
}
