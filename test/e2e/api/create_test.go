package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"plantstore/api"
	"plantstore/test/testkit"
)

// Every engine, with Citus, stores what the description allows and returns it.
func TestCreate(t *testing.T) {
	t.Parallel()
	all := testkit.StartOnAllEngines(t)
	for _, test := range []struct{ what, body, want string }{
		{"a plant", `{"id":1,"name":"Monstera deliciosa","tag":"climber"}`, `{"name":"Monstera deliciosa","tag":"climber"}`},
		{"the same plant again", `{"tag":"climber","name":"Monstera deliciosa","id":1.0}`,
			`{"name":"Monstera deliciosa","tag":"climber"}`},
		{"without a tag", `{"id":2,"name":"Fern"}`, `{"name":"Fern"}`},
		{"with an empty tag", `{"id":3,"name":"Fern","tag":""}`, `{"name":"Fern","tag":""}`},
		{"the largest id", `{"id":9223372036854775807,"name":"x"}`, `{"name":"x"}`},
		{"the smallest id", `{"id":-9223372036854775808,"name":"x"}`, `{"name":"x"}`},
		{"an id as a decimal", `{"id":4.0,"name":"x"}`, `{"name":"x"}`},
		{"an id with an exponent", `{"id":1e2,"name":"x"}`, `{"name":"x"}`},
		{"an empty name", `{"id":5,"name":""}`, `{"name":""}`},
		{"escapes", `{"id":6,"name":"\u00e9\ud83c\udf35\/\"\\\n"}`, `{"name":"é🌵/\"\\\n"}`},
		{"markup", `{"id":7,"name":"<b>&amp;"}`, `{"name":"<b>&amp;"}`},
		{"additional members", `{"id":8,"name":"x","ID":1,"more":{"id":[]}}`, `{"name":"x"}`},
	} {
		a := all.Create(t, test.body)
		testkit.WantResponse(t, test.what, a, 200, test.want)
		if ct := a.Header["Content-Type"]; len(ct) != 1 || ct[0] != "application/json" {
			t.Errorf("%s: Content-Type %q", test.what, ct)
		}
	}
	for id, want := range map[string]string{
		"1": `{"id":1,"name":"Monstera deliciosa","tag":"climber"}`, "2": `{"id":2,"name":"Fern"}`,
		"3":                    `{"id":3,"name":"Fern","tag":""}`,
		"9223372036854775807":  `{"id":9223372036854775807,"name":"x"}`,
		"-9223372036854775808": `{"id":-9223372036854775808,"name":"x"}`, "100": `{"id":100,"name":"x"}`,
	} {
		testkit.WantResponse(t, "read plant "+id, all.Do(t, "GET", "/plants/"+id, ""), 200, want)
	}
	for _, body := range []string{`{"id":1,"name":"Monstera"}`, `{"id":1,"name":"Monstera deliciosa"}`,
		`{"id":1,"name":"Monstera deliciosa","tag":"Climber"}`, `{"id":2,"name":"Fern","tag":""}`, `{"id":3,"name":"Fern"}`} {
		testkit.WantError(t, body, all.Create(t, body), 40009)
	}
}

// Every kind of invalid request returns a 400 with its own error number and stores nothing.
func TestCreateRefused(t *testing.T) {
	t.Parallel()
	all := testkit.StartOnEachEngine(t)
	const good = `{"id":1,"name":"x"}`
	large := `{"id":1,"name":"` + strings.Repeat("x", 64<<10) + `"}`
	for _, test := range []struct {
		what    string
		number  int
		body    string
		headers []string
	}{
		{"an empty body", 40001, "", nil},
		{"half an object", 40002, `{"id":1`, nil},
		{"invalid UTF-8", 40003, "{\"id\":1,\"name\":\"\xff\"}", nil},
		{"a byte order mark", 40004, "\xef\xbb\xbf" + good, nil},
		{"a lone surrogate", 40005, `{"id":1,"name":"\ud800"}`, nil},
		{"trailing bytes", 40006, good + "x", nil},
		{"a duplicate member", 40007, `{"id":1,"name":"x","\u0069d":1}`, nil},
		{"30 000 levels", 40008, `{"id":1,"name":"x","more":` + strings.Repeat("[", 30_000), nil},
		{"null", 40010, `null`, nil},
		{"no id", 40011, `{"name":"x"}`, nil},
		{"id null", 40012, `{"id":null,"name":"x"}`, nil},
		{"id a string", 40013, `{"id":"1","name":"x"}`, nil},
		{"2^63", 40014, `{"id":9223372036854775808,"name":"x"}`, nil},
		{"a huge exponent", 40014, `{"id":1e999999999999,"name":"x"}`, nil},
		{"name a number", 40015, `{"id":1,"name":1}`, nil},
		{"U+0000", 40016, `{"id":1,"name":"\u0000"}`, nil},
		{"too large", 40017, large, nil},
		{"no content type", 40018, good, []string{"Content-Type"}},
		{"another content type", 40019, good, []string{"Content-Type: text/json"}},
		{"another charset", 40019, good, []string{"Content-Type: application/json; charset=latin1"}},
		{"gzip", 40021, good, []string{"Content-Encoding: gzip"}},
	} {
		a := all.Do(t, "POST", "/plants", test.body, append([]string{testkit.ContentJSON}, test.headers...)...)
		testkit.WantError(t, test.what, a, test.number)
	}
	testkit.WantResponse(t, "the stored plants", all.Do(t, "GET", "/plants", ""), 200, "[]")

	for _, headers := range [][]string{
		{"Content-Type: Application/JSON; Charset=UTF-8"}, {`Content-Type: application/json;charset="utf-8"`},
		{testkit.ContentJSON, "Content-Encoding: identity"},
	} {
		testkit.WantResponse(t, fmt.Sprint(headers), all.Do(t, "POST", "/plants", good, headers...), 200, `{"name":"x"}`)
	}
}

// Behind a proxy, the service has the address and the path that clients see.
func TestBaseURL(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.Engines[0].Database(t), "--base-url", "http://plants.example/some/prefix/")
	if s.URL != "http://plants.example/some/prefix" {
		t.Fatalf("the server prints the address %s", s.URL)
	}
	_, after, _ := strings.Cut(s.Stderr.String(), `"listening":"`)
	address, _, _ := strings.Cut(after, `"`)
	s.URL = "http://" + address
	testkit.WantError(t, "without the prefix", s.Create(t, `{"id":1,"name":"x"}`), 40402)
	s.URL += "/some/prefix"
	a, err := s.Send("POST", "/plants", `{"id":1,"name":"x"}`)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantResponse(t, "with the prefix", a, 200, `{"name":"x"}`)
	if a, err = s.Send("GET", "/healthz", ""); err != nil {
		t.Fatal(err)
	}
	testkit.WantResponse(t, "the health check of a published port", a, 200, "ok\n")
}

// drawBody draws a request body that is mostly nearly valid.
func drawBody(t *rapid.T, id int64) []byte {
	scalars := []any{nil, true, 0, -1, 1.5, "", "x", "é🌵", []any{}, map[string]any{}, json.Number("1e2"),
		json.Number("1.0"), json.Number("9223372036854775808"), json.Number("-9223372036854775808"), json.Number("1e400")}
	text := rapid.StringOfN(rapid.Rune().Filter(func(r rune) bool { return r < 0xd800 || r > 0xdfff }), 0, 20, -1)
	members := map[string]any{}
	value := func(name string, right any) {
		switch rapid.IntRange(0, 9).Draw(t, name) {
		case 0:
		case 1:
			members[name] = rapid.SampledFrom(scalars).Draw(t, name+" value")
		default:
			members[name] = right
		}
	}
	value("id", json.Number(rapid.SampledFrom([]string{"%d", "%d.0", "%d00e-2", "%d.000e0"}).Draw(t, "form")))
	if n, ok := members["id"].(json.Number); ok && strings.Contains(string(n), "%") {
		members["id"] = json.Number(fmt.Sprintf(string(n), id))
	}
	value("name", text.Draw(t, "name text"))
	value("tag", text.Draw(t, "tag text"))
	value(rapid.SampledFrom([]string{"ID", "Name", "more", ""}).Draw(t, "extra"), 1)
	body, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// The description is exact: what it allows returns 200 and is read back as sent, and what it forbids returns 400 and
// stores nothing. A validator that knows only the description decides which is which.
func TestDescriptionIsExact(t *testing.T) {
	t.Parallel()
	all := testkit.StartOnAllEngines(t)
	described := newPlantSchema(t)
	next := int64(1000)
	var allowed, refused int
	property := func(rt *rapid.T) {
		next++
		body := drawBody(rt, next)
		a := all.Create(t, string(body))
		if value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
			t.Fatal(err)
		} else if described.Validate(value) == nil {
			allowed++
			wantStored(t, rt, all, body, a)
			return
		}
		refused++
		if a.Status != 400 {
			rt.Fatalf("%s: the description forbids it, and it returned %d %s", body, a.Status, a.Body)
		}
		if got := all.Do(t, "GET", "/plants/"+strconv.FormatInt(next, 10), ""); got.Status != 404 {
			rt.Fatalf("%s was refused, and plant %d is stored: %s", body, next, got.Body)
		}
	}
	rapid.Check(t, property)
	for range 4 {
		if testing.Short() { // Then each draws a fifth.
			rapid.Check(t, property)
		}
	}
	t.Logf("%d bodies allowed, %d refused", allowed, refused)
	if allowed == 0 || refused == 0 {
		t.Error("want at least one of each")
	}
}

// newPlantSchema returns the schema of a create in the description, for a validator with exact numbers.
func newPlantSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.Description("json", "http://plants.example", false)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("openapi.json", document); err != nil {
		t.Fatal(err)
	}
	return compiler.MustCompile("openapi.json#/components/schemas/NewPlant")
}

// wantStored checks the response to an allowed create, and that the plant is read back as it was sent.
func wantStored(t *testing.T, rt *rapid.T, all testkit.Servers, body []byte, a testkit.Response) {
	if a.Number() == 40009 { // an id of the samples that was drawn before with another name
		return
	}
	members := map[string]json.RawMessage{}
	var name string
	var tag *string
	if err := errors.Join(json.Unmarshal(body, &members), json.Unmarshal(members["name"], &name)); err != nil {
		rt.Fatal(err)
	}
	json.Unmarshal(members["tag"], &tag) // It may be absent.
	exact, ok := new(big.Rat).SetString(string(members["id"]))
	if !ok || !exact.IsInt() {
		rt.Fatalf("%s: the id is not an integer", body)
	}
	if a.Status != 200 || a.Body != show(nil, name, tag) {
		rt.Fatalf("%s: %d %s, want 200 %s", body, a.Status, a.Body, show(nil, name, tag))
	}
	id := exact.Num().Int64()
	got := all.Do(t, "GET", fmt.Sprintf("/plants/%d", id), "")
	if got.Status != 200 || got.Body != show(&id, name, tag) {
		rt.Fatalf("%s is read back as %d %s", body, got.Status, got.Body)
	}
}

// show is how the service writes a plant, with another JSON library.
func show(id *int64, name string, tag *string) string {
	var b strings.Builder
	b.WriteByte('{')
	if id != nil {
		fmt.Fprintf(&b, `"id":%d,`, *id)
	}
	b.WriteString(`"name":` + quote(name))
	if tag != nil {
		b.WriteString(`,"tag":` + quote(*tag))
	}
	return b.String() + "}"
}

// quote is a JSON string. The library escapes more than JSON requires.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.Encode(s) // It cannot fail for a string.
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029", `\u007f`,
		"\x7f").Replace(strings.TrimSuffix(b.String(), "\n"))
}
