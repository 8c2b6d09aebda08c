package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"plantstore/client"
)

const fern = "ID  NAME  TAG\n7   Fern  shade\n"

// plantsTests run in order. An argument of _ is an empty text; ETAG is that of the last plant that was printed
// as JSON. An output that is not a complete line is the start of what is expected.
var plantsTests = []struct {
	args, stdout, stderr string
	code                 int
}{
	{"create --id 7 --name Fern --tag shade", fern, "", 0},
	{"create --tag shade --name Fern --id 7", fern, "", 0},
	{"create --id 7 --name Fern", "", "40009: ", 4},
	{"create --id -9223372036854775808 --name _ --tag _ --json",
		`{"id":-9223372036854775808,"name":"","tag":""}` + "\n", "", 0},
	{"create --json --id=9223372036854775807 --name=\x1b[31m<b>",
		`{"id":9223372036854775807,"name":"\u001b[31m<b>"}` + "\n", "", 0},
	{"create --id 1", "", "--id and --name are required\n", 2},
	{"create --name x", "", "--id and --name are required\n", 2},
	{"create --id 1 --name x y", "", "expected arguments: none; got: [\"y\"]; see plantstore plants ", 2},
	{"create --id 1 --name \xff", "", "the name and the tag must be valid UTF-8\n", 1},
	{"get 7", "ID  NAME  TAG    ETAG\n7   Fern  shade  ", "", 0},
	{"get 7 --json", `{"id":7,"name":"Fern","tag":"shade","etag":"`, "", 0},
	{"get -9223372036854775808", "ID                    NAME  TAG  ETAG\n-9223372036854775808  \"\"    \"\"   ", "", 0},
	{"get 8", "", "40401: ", 3},
	{"get -8", "", "40401: ", 3},
	{"get seven", "", "id \"seven\" must be an integer from ", 2},
	{"get 07", "", "id \"07\" must be an integer from ", 2},
	{"get", "", "expected arguments: ID; got: []; see plantstore plants ", 2},
	{"list", "ID                    NAME           TAG\n-9223372036854775808  \"\"             \"\"\n" +
		"7                     Fern           shade\n9223372036854775807   \"\\x1b[31m<b>\"  \n", "", 0},
	{"list --limit 1 --after -5", fern, "", 0},
	{"list --after 9223372036854775807", "ID  NAME  TAG\n", "", 0},
	{"list --after 9223372036854775807 --json", "[]\n", "", 0},
	{"list --json --limit 2", `[{"id":-9223372036854775808,"name":"","tag":""},` + "\n" +
		`{"id":7,"name":"Fern","tag":"shade"}]` + "\n", "", 0},
	{"list --limit -1", "", "--limit is -1: use 0 or more\n", 2},
	{"list extra", "", "expected arguments: none; got: [\"extra\"]; see plantstore plants ", 2},
	{"replace 7", "", "--name is required\n", 2},
	{"replace 7 --name Ivy --if-match other", "", "41201: ", 4},
	{"replace 7 --name Ivy --if-match ETAG", "ID  NAME  TAG  ETAG\n7   Ivy        ", "", 0},
	{"replace 7 --name Oak --if-match ETAG", "", "41201: ", 4},
	{"replace 7 --name Oak --tag big --json", `{"id":7,"name":"Oak","tag":"big","etag":"`, "", 0},
	{"remove 7 --if-match other", "", "41201: ", 4},
	{"remove --if-match * 7", "", "", 0},
	{"remove 7", "", "40401: ", 3},
	{"remove -9223372036854775808", "", "", 0},
	{"remove", "", "expected arguments: ID...; got: []; see plantstore plants ", 2},
	{"get 7 8", "", "expected arguments: ID; got: [\"7\" \"8\"]; see plantstore plants ", 2},
	{"create --id 1 --name x", "ID  NAME  TAG\n1   x     \n", "", 0},
	{"create --id -2 --name x", "ID  NAME  TAG\n-2  x     \n", "", 0},
	{"create --id -3 --name x", "ID  NAME  TAG\n-3  x     \n", "", 0},
	{"delete 1 x -2", "", "id \"x\" must be an integer from ", 2},
	{"rm 1 -2 --if-match other", "", "--if-match is the ETag of one plant: use one id\n", 2},
	{"remove 8 1 -9 --if-match * -2 -3 9", "",
		"40401: plant 8 does not exist; 40401: plant 9 does not exist; 40401: plant -9 does not exist\n", 3},
	{"ls", "ID                   NAME           TAG\n9223372036854775807  \"\\x1b[31m<b>\"  \n", "", 0},
	{"remove 8 9 --token a-fixed-token-of-others", "", "40103: ", 6},
	{"get 7 --token a-fixed-token-of-others", "", "40103: ", 6},
}

func TestPlants(t *testing.T) {
	url, _, _ := startService(t, filepath.Join(t.TempDir(), "plants.db"))
	v := variables{"PLANTSTORE_URL": url, "PLANTSTORE_TOKEN": fixedToken}
	etag := ""
	for _, test := range plantsTests {
		args := strings.Fields(test.args)
		for i, arg := range args {
			args[i] = strings.NewReplacer("_", "", "ETAG", etag).Replace(arg)
		}
		got := plantstore(t, v, append([]string{"plants"}, args...)...)
		_, stderr, ok := strings.Cut(got.stderr, ": ") // of the command, whose name may be an alias
		if got.code != test.code || !matches(got.stdout, test.stdout) || !matches(stderr, test.stderr) ||
			ok != (test.stderr != "") || strings.Count(got.stderr, "\n") > 1 {
			t.Errorf("plants %q: exit %d\n%s%s\nwant exit %d\n%s%s",
				args, got.code, got.stdout, got.stderr, test.code, test.stdout, test.stderr)
		}
		var printed struct{ ETag string }
		if json.Unmarshal([]byte(got.stdout), &printed, json.MatchCaseInsensitiveNames(true)) == nil && printed.ETag != "" {
			etag = strings.Trim(printed.ETag, `"`) // a shell removes the quotes
		}
	}
}

// All JSON that a command prints escapes what a terminal would interpret or not display, and has the same value.
func TestHiddenCharacters(t *testing.T) {
	url, _, _ := startService(t, filepath.Join(t.TempDir(), "plants.db"))
	v := variables{"PLANTSTORE_URL": url, "PLANTSTORE_TOKEN": fixedToken}
	const name = "\x1b[31m\x7f\u0085\u009b\u061c\u200e\u2028\u202e\u2066\u2069\ufeff\U000e0041 é 🌵 \\u009b \"\\"
	printed := func(args ...string) string {
		got := plantstore(t, v, append([]string{"plants"}, args...)...)
		if got.code != 0 || strings.ContainsFunc(got.stdout, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) {
			t.Errorf("plants %q: %+v, want no hidden character", args, got)
		}
		return got.stdout
	}
	one := printed("create", "--id", "1", "--name", name, "--tag", name, "--json")
	if !strings.Contains(one, `\u009b`) || !strings.Contains(one, `\udb40\udc41 é 🌵 \\u009b \"\\"`) {
		t.Errorf("printed %s", one)
	}
	for _, text := range []string{
		"[" + one + "]", "[" + printed("get", "1", "--json") + "]", printed("list", "--json"),
		"[" + printed("export") + "]",
	} {
		var plants []client.NewPlant
		err := json.Unmarshal([]byte(text), &plants)
		if err != nil || len(plants) != 1 || plants[0].Name != name || *plants[0].Tag != name {
			t.Errorf("%s: %+v, %v", text, plants, err)
		}
	}
	printed("list")
	if got := plantstore(t, v, "plants", "export", "--format", "csv"); !strings.Contains(got.stdout, "\u009b") {
		t.Errorf("CSV: %+v, want the characters as they are", got)
	}
}

// matches reports whether got is want, or starts with a want that is not a complete line.
func matches(got, want string) bool {
	return got == want || want != "" && !strings.HasSuffix(want, "\n") && strings.HasPrefix(got, want)
}

// scripted is a service that responds as the test specifies and records the requests.
type scripted struct {
	*httptest.Server
	mu       sync.Mutex
	received []*http.Request
}

func script(t *testing.T, respond func(n int, w http.ResponseWriter, r *http.Request)) *scripted {
	s := new(scripted)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.received = append(s.received, r)
		n := len(s.received)
		s.mu.Unlock()
		respond(n, w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *scripted) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

func (s *scripted) plants(t *testing.T, args ...string) result {
	t.Helper()
	v := variables{"PLANTSTORE_TOKEN": fixedToken, "PLANTSTORE_URL": s.URL}
	return plantstore(t, v, append([]string{"plants"}, args...)...)
}

func TestTokenOfClient(t *testing.T) {
	file := tempFile(t, "from-a-file\n")
	for _, test := range []struct {
		v    variables
		args []string
		want string // the token that is sent, or an error
		code int
	}{
		{variables{"PLANTSTORE_TOKEN": "variable"}, nil, "variable", 0},
		{nil, []string{"--token", "flag"}, "flag", 0},
		{nil, []string{"--token-file", file}, "from-a-file", 0},
		{variables{"PLANTSTORE_TOKEN_FILE": file}, nil, "from-a-file", 0},
		{variables{"PLANTSTORE_TOKEN": "variable"}, []string{"--token", "flag"}, "flag", 0},
		{variables{"PLANTSTORE_TOKEN": "variable"}, []string{"--token-file", file}, "from-a-file", 0},
		{nil, []string{"--token", "flag", "--token-file", file}, "flag", 0},
		{variables{"PLANTSTORE_TOKEN": "variable"}, []string{"--token=", "--token-file", file}, "from-a-file", 0},
		{nil, nil, "a token is required: set PLANTSTORE_TOKEN or --token-file\n", 2},
		{nil, []string{"--token", "two words"}, "the token must consist of visible ASCII characters\n", 2},
		{nil, []string{"--token-file", "/nowhere"},
			`--token-file is "/nowhere": open /nowhere: no such file or directory` + "\n", 2},
	} {
		s := script(t, func(_ int, w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") })
		got := plantstore(t, test.v, append([]string{"plants", "list", "--url", s.URL}, test.args...)...)
		if test.code != 0 {
			got.want(t, fmt.Sprint(test.v, test.args), test.code, "", "plantstore plants list: "+test.want)
			continue
		}
		if got.code != 0 || len(s.requests()) != 1 || s.requests()[0].Header.Get("Authorization") != "Bearer "+test.want {
			t.Errorf("%v %q: %+v, %d requests, want one with the token %s", test.v, test.args, got, len(s.requests()), test.want)
		}
	}
	for _, args := range []string{"create --id 1 --name x", "get 1", "list", "replace 1 --name x", "remove 1"} {
		command, _, _ := strings.Cut(args, " ")
		got := plantstore(t, nil, strings.Fields("plants "+args+" --token x --url 127.0.0.1:1")...)
		got.want(t, args, 2, "", "plantstore plants "+command+": base URL \"127.0.0.1:1\" is invalid: "+
			"use one such as http://127.0.0.1:8080\n")
	}
}

// --if-match is sent with the quotes that a shell removes. An empty ETag, such as that of an unset variable in a
// script, is refused and does not mean "no precondition".
func TestIfMatch(t *testing.T) {
	for flag, want := range map[string]string{
		"": "*", "--if-match=*": "*", "--if-match=abc": `"abc"`, "--if-match=a,b": `"a,b"`, `--if-match="abc"`: `"abc"`,
		`--if-match=W/"abc"`: `W/"abc"`, "--if-match=": "none", "--if-match= ": "none",
	} {
		s := script(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			io.WriteString(w, `{"id":7,"name":"x"}`)
		})
		for _, args := range [][]string{{"remove", "7"}, {"replace", "7", "--name", "x"}} {
			if flag != "" {
				args = append(args, flag)
			}
			got := s.plants(t, args...)
			refused := got.code == 2 && strings.HasSuffix(got.stderr,
				": must not be empty; use the ETag that plants get prints, or * for any\n")
			if refused != (want == "none") || !refused && got.code != 0 {
				t.Errorf("plants %q: %+v", args, got)
			}
		}
		for _, r := range s.requests() {
			if got := r.Header.Get("If-Match"); got != want {
				t.Errorf("%s with %q sent %q, want %q", r.Method, flag, got, want)
			}
		}
	}
}

// A change with an unknown outcome is reported as such, with what to do.
func TestUnknownOutcome(t *testing.T) {
	unknown := client.ErrUnknown.Error() + ": "
	const again = "run the same command again, which is safe"
	const check, stopped = "check with plants get before running it again", "; stopped at id 7"
	busy := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"error":50301,"message":"busy"}`)
	}
	for _, test := range []struct {
		args     string
		requests int
		cause    string
		advice   string
	}{
		{"create --id 7 --name Fern", 4, "50301: busy (tried 4 times); ", again},
		{"replace 7 --name Fern", 1, "EOF; ", check},
		{"remove 7", 1, "EOF; ", check},
		{"remove 7 8", 1, "EOF; ", check + stopped},
	} {
		s := script(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			if n == 1 {
				panic(http.ErrAbortHandler) // the change may have been made
			}
			busy(w)
		})
		args := strings.Fields(test.args)
		got := s.plants(t, args...)
		if !strings.HasPrefix(got.stderr, "plantstore plants "+args[0]+": "+unknown) ||
			!strings.HasSuffix(got.stderr, test.cause+test.advice+"\n") || got.code != 1 || len(s.requests()) != test.requests {
			t.Errorf("plants %s: %d requests, %+v", test.args, len(s.requests()), got)
		}
		s = script(t, func(_ int, w http.ResponseWriter, _ *http.Request) { busy(w) })
		s.plants(t, args...).want(t, test.args, 1, "", "plantstore plants "+args[0]+": 50301: busy (tried 4 times)"+
			test.advice[len(strings.TrimSuffix(test.advice, stopped)):]+"\n")
	}
}

// A wait for a rate limit is announced once, also if several requests of an import wait. With --json nothing is.
func TestRateLimit(t *testing.T) {
	const announced = "Over the rate limit: waiting 1 s.\n"
	file := tempFile(t, "{\"id\":1,\"name\":\"x\"}\n{\"id\":2,\"name\":\"x\"}\n{\"id\":3,\"name\":\"x\"}\n")
	for _, test := range []struct {
		args, stderr string
		refused      int // at once
	}{
		{"create --id 1 --name x", announced, 1}, {"create --id 1 --name x --json", "", 1},
		{"import " + file, announced + "plants of " + file + ": 3 in the store, 0 skipped, 0 not imported; ", 3},
	} {
		var together sync.WaitGroup
		together.Add(test.refused)
		s := script(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			if n <= test.refused {
				together.Done()
				together.Wait()
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
				io.WriteString(w, `{"error":42901,"message":"slower"}`)
				return
			}
			io.WriteString(w, `{"name":"x"}`)
		})
		got := s.plants(t, strings.Fields(test.args)...)
		if got.code != 0 || !matches(got.stderr, test.stderr) || len(s.requests()) != 2*test.refused {
			t.Errorf("plants %s: %d requests, %+v", test.args, len(s.requests()), got)
		}
	}
}

// listOf serves plants 1 to n in pages.
func listOf(t *testing.T, n int) *scripted {
	return script(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		limit, after := 0, 0
		fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		fmt.Sscan(r.URL.Query().Get("after"), &after)
		end := min(after+limit, n)
		if end < n {
			w.Header().Set("Link", fmt.Sprintf(`</plants?limit=%d&after=%d>; rel="next"`, limit, end))
		}
		page := []client.NewPlant{}
		for id := after + 1; id <= end; id++ {
			page = append(page, client.NewPlant{ID: int64(id), Plant: client.Plant{Name: "x"}})
		}
		json.MarshalWrite(w, page)
	})
}

func TestListPages(t *testing.T) {
	for _, test := range []struct {
		limit   string
		printed int
		sizes   []string // of the requested pages
	}{
		{"0", 2001, []string{"1000", "1000", "1000"}},
		{"1", 1, []string{"1"}},
		{"999", 999, []string{"999"}},
		{"1000", 1000, []string{"1000"}},
		{"1001", 1001, []string{"1000", "1000"}},
		{"9999", 2001, []string{"1000", "1000", "1000"}},
	} {
		s := listOf(t, 2001)
		got := s.plants(t, "list", "--limit", test.limit)
		if lines := strings.Count(got.stdout, "\n"); lines != test.printed+1 || got.code != 0 || got.stderr != "" {
			t.Errorf("list --limit %s: exit %d, %d lines, %s, want %d", test.limit, got.code, lines, got.stderr, test.printed+1)
		}
		var sizes []string
		for _, r := range s.requests() {
			sizes = append(sizes, r.URL.Query().Get("limit"))
		}
		if !slices.Equal(sizes, test.sizes) {
			t.Errorf("list --limit %s requested pages of %q, want %q", test.limit, sizes, test.sizes)
		}
		got = s.plants(t, "list", "--json", "--limit", test.limit)
		var all []client.NewPlant
		if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || len(all) != test.printed || got.code != 0 {
			t.Errorf("list --json --limit %s: exit %d, %d plants, %v", test.limit, got.code, len(all), err)
		}
	}
}

// What was received before an error is printed; a page that cannot be printed is the last that is requested.
func TestListFails(t *testing.T) {
	refuse := func(from int) *scripted {
		return script(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			if n >= from {
				w.WriteHeader(http.StatusForbidden)
				io.WriteString(w, `{"error":40301,"message":"no"}`)
				return
			}
			w.Header().Set("Link", `</plants?after=1>; rel="next"`)
			io.WriteString(w, `[{"id":1,"name":"x"}]`)
		})
	}
	const failed, asJSON = "plantstore plants list: 40301: no\n", `{"error":40301,"message":"no","exit":6}` + "\n"
	refuse(1).plants(t, "list").want(t, "list", 6, "", failed)
	refuse(1).plants(t, "list", "--json").want(t, "list --json", 6, "", asJSON)
	refuse(2).plants(t, "list").want(t, "list, second page", 6, "ID  NAME  TAG\n1   x     \n", failed)
	refuse(2).plants(t, "list", "--json").want(t, "list --json, second page", 6, `[{"id":1,"name":"x"}`, asJSON)

	for _, form := range []string{"--json=false", "--json"} {
		s := listOf(t, 3000)
		toFullDisk(t, variables{"PLANTSTORE_TOKEN": fixedToken}, "plants", "list", form, "--url", s.URL)
		if len(s.requests()) != 1 {
			t.Errorf("list %s to a full disk requested %d pages, want 1", form, len(s.requests()))
		}
		one := script(t, func(_ int, w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"id":7,"name":"x"}`) })
		toFullDisk(t, variables{"PLANTSTORE_TOKEN": fixedToken}, "plants", "get", "7", form, "--url", one.URL)
	}
	toFullDisk(t, nil, "version")
}

func TestCell(t *testing.T) {
	for text, want := range map[string]string{
		"Fern": "Fern", "two words": "two words", `in "quotes"`: `in "quotes"`, "é🌵": "é🌵",
		"": `""`, `"Fern"`: `"\"Fern\""`, " Fern": `" Fern"`, "Fern\n": `"Fern\n"`, "a\tb": `"a\tb"`,
		"\x1b[31m": `"\x1b[31m"`, "\u202eFern": `"\u202eFern"`, "a\u00a0b": `"a\u00a0b"`, "-": "-",
		strings.Repeat("é", 60): strings.Repeat("é", 60), strings.Repeat("🌵", 61): strings.Repeat("🌵", 59) + "…",
		strings.Repeat("x", 59) + "\n": `"` + strings.Repeat("x", 59) + `\n"`,
	} {
		if got := cell(text); got != want {
			t.Errorf("cell(%q) = %s, want %s", text, got, want)
		}
	}
}
