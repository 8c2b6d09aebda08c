package plant_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"plantstore/internal/plant"
)

func tag(s string) *string { return &s }

func TestDecodeAllowed(t *testing.T) {
	for _, test := range []struct {
		body string
		want plant.Plant
	}{
		{`{"id":1,"name":"Fern"}`, plant.Plant{ID: 1, Content: plant.Content{Name: "Fern"}}},
		{`{"tag":"","name":"","id":0}`, plant.Plant{Content: plant.Content{Tag: tag("")}}},
		{" \t\r\n{ \"id\" : -1 , \"name\" : \"a\" } \n", plant.Plant{ID: -1, Content: plant.Content{Name: "a"}}},
		{`{"id":9223372036854775807,"name":""}`, plant.Plant{ID: 9223372036854775807}},
		{`{"id":-9223372036854775808,"name":""}`, plant.Plant{ID: -9223372036854775808}},
		{`{"id":9223372036854775807.0,"name":""}`, plant.Plant{ID: 9223372036854775807}},
		{`{"id":9007199254740993,"name":""}`, plant.Plant{ID: 9007199254740993}},
		{`{"id":1.0,"name":""}`, plant.Plant{ID: 1}},
		{`{"id":1e2,"name":""}`, plant.Plant{ID: 100}},
		{`{"id":1E+2,"name":""}`, plant.Plant{ID: 100}},
		{`{"id":-12.50e1,"name":""}`, plant.Plant{ID: -125}},
		{`{"id":1200e-2,"name":""}`, plant.Plant{ID: 12}},
		{`{"id":12345678901234567890e-1,"name":""}`, plant.Plant{ID: 1234567890123456789}},
		{`{"id":9223372036854775.807e3,"name":""}`, plant.Plant{ID: 9223372036854775807}},
		{`{"id":-9223372036854775.808e3,"name":""}`, plant.Plant{ID: -9223372036854775808}},
		{`{"id":0.1e19,"name":""}`, plant.Plant{ID: 1e18}},
		{`{"id":-0,"name":""}`, plant.Plant{}},
		{`{"id":0.000e99999999999999999999,"name":""}`, plant.Plant{}},
		{`{"id":0e-99999999999999999999,"name":""}`, plant.Plant{}},
		{`{"id":0.0000000000000000000009e22,"name":""}`, plant.Plant{ID: 9}},
		{`{"\u0069d":1,"n\u0061me":"x"}`, plant.Plant{ID: 1, Content: plant.Content{Name: "x"}}},
		{`{"id":1,"name":"\ud83c\udf35\n\u0001","tag":"\u00e9"}`,
			plant.Plant{ID: 1, Content: plant.Content{Name: "🌵\n\x01", Tag: tag("é")}}},
		{`{"x":"tag","id":1,"y":"name","name":"x","z":"id"}`, plant.Plant{ID: 1, Content: plant.Content{Name: "x"}}},
		{`{"id":1,"name":"x","ID":"other","Name":null,"more":{"id":[{}]},"":0}`,
			plant.Plant{ID: 1, Content: plant.Content{Name: "x"}}},
		{`{"id":1,"name":"x","more":` + strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999) + `}`,
			plant.Plant{ID: 1, Content: plant.Content{Name: "x"}}},
	} {
		got, err := plant.Decode([]byte(test.body))
		if err != nil {
			t.Errorf("Decode(%.60s) = %v", test.body, err)
		} else if got.ID != test.want.ID || !got.Equal(test.want.Content) {
			t.Errorf("Decode(%.60s) = %+v, want %+v", test.body, got, test.want)
		}
	}
}

// forbidden are bodies that the published description does not allow.
var forbidden = []struct {
	body    string
	reason  plant.Reason
	pointer string
}{
	{``, plant.Empty, ""},
	{" \n\t", plant.Empty, ""},
	{`{"id":1,"name":"x"`, plant.Syntax, ""},
	{`{"id":1,"name":"x}`, plant.Syntax, "/name"},
	{`{"id":1,"name":"x",}`, plant.Syntax, ""},
	{`{"id":1,,"name":"x"}`, plant.Syntax, ""},
	{`{id:1,"name":"x"}`, plant.Syntax, ""},
	{`{'id':1}`, plant.Syntax, ""},
	{`{"id":01,"name":"x"}`, plant.Syntax, ""},
	{`{"id":+1,"name":"x"}`, plant.Syntax, "/id"},
	{`{"id":.5,"name":"x"}`, plant.Syntax, "/id"},
	{`{"id":1.,"name":"x"}`, plant.Syntax, "/id"},
	{`{"id":NaN,"name":"x"}`, plant.Syntax, "/id"},
	{`{"id":1,"name":"a` + "\n" + `b"}`, plant.Syntax, "/name"},
	{`{"id":1,"name":"\x"}`, plant.Syntax, "/name"},
	{`{"id":1 "name":"x"}`, plant.Syntax, ""},
	{`nul`, plant.Syntax, ""},
	{`{"id":}`, plant.Syntax, "/id"},
	{`{"id":1,"name":}`, plant.Syntax, "/name"},
	{`{"id":1,"name":"x","more":}`, plant.Syntax, "/more"},
	{`{1:1}`, plant.Syntax, ""},
	{"{\"id\":1,\"name\":\"\xff\"}", plant.InvalidUTF8, ""},
	{"{\"id\":1,\"name\":\"x\"}\xff", plant.InvalidUTF8, ""},
	{"{\"id\":1,\"name\":\"\xed\xa0\x80\"}", plant.InvalidUTF8, ""},
	{"{\"id\":1,\"name\":\"\xc0\x80\"}", plant.InvalidUTF8, ""},
	{"\xef\xbb\xbf{\"id\":1,\"name\":\"x\"}", plant.ByteOrderMark, ""},
	{"{\x00\"\x00i\x00d\x00", plant.Syntax, ""},        // UTF-16
	{`{"id":1,"name":"\ud8🌵"}`, plant.Syntax, "/name"}, // not even half of a pair
	{`{"id":1,"name":"\ud83`, plant.Syntax, "/name"},
	{`{"id":1,"name":"\ud83c`, plant.LoneSurrogate, "/name"},
	{`{"id":1,"name":"\ud8zf"}`, plant.Syntax, "/name"},
	{`{"id":1,"name":"\ud8fz"}`, plant.Syntax, "/name"},
	{`{"id":1,"name":"\ud83c"}`, plant.LoneSurrogate, "/name"},
	{`{"id":1,"name":"\udf35"}`, plant.LoneSurrogate, "/name"},
	{`{"id":1,"name":"\udf35\ud83c"}`, plant.LoneSurrogate, "/name"},
	{`{"id":1,"name":"x","tag":"\uDBFFx"}`, plant.LoneSurrogate, "/tag"},
	{`{"id":1,"name":"x","\ud800":1}`, plant.LoneSurrogate, ""},
	{`{"id":1,"name":"x"}{}`, plant.Trailing, ""},
	{`{"id":1,"name":"x"} x`, plant.Trailing, ""},
	{`{"id":1,"name":"x"},`, plant.Trailing, ""},
	{"{\"id\":1,\"name\":\"x\"}\x00", plant.Trailing, ""},
	{`{"id":1,"name":"x","id":1}`, plant.DuplicateName, "/id"},
	{`{"id":1,"name":"x","\u0069d":1}`, plant.DuplicateName, "/id"},
	{`{"id":1,"name":"x","tag":"a","tag":"a"}`, plant.DuplicateName, "/tag"},
	{`{"id":1,"name":"x","a":1,"\u0061":2}`, plant.DuplicateName, "/a"},
	{`{"id":1,"name":"x","more":{"a":1,"a":2}}`, plant.DuplicateName, "/more/a"},
	{`{"id":1,"name":"x","more":` + strings.Repeat("[", 9_998) + `{"a":1,"a":1}` + strings.Repeat("]", 9_998) + "}",
		plant.DuplicateName, ""},
	{`{"id":1,"name":"x","more":` + strings.Repeat("[", 100_000), plant.TooDeep, ""},
	{`{"id":1,"name":"x","more":` + strings.Repeat(`{"a":`, 20_000), plant.TooDeep, ""},
	{strings.Repeat("[", 100_000), plant.TooDeep, ""},
	{`null`, plant.NotObject, ""},
	{`[]`, plant.NotObject, ""},
	{`[{"id":1,"name":"x"}]`, plant.NotObject, ""},
	{`"x"`, plant.NotObject, ""},
	{`1`, plant.NotObject, ""},
	{`true`, plant.NotObject, ""},
	{`{}`, plant.Missing, "/id"},
	{`{"name":"x"}`, plant.Missing, "/id"},
	{`{"id":1}`, plant.Missing, "/name"},
	{`{"ID":1,"name":"x"}`, plant.Missing, "/id"},
	{`{"id":1,"Name":"x"}`, plant.Missing, "/name"},
	{`{"id":null,"name":"x"}`, plant.Null, "/id"},
	{`{"id":1,"name":null}`, plant.Null, "/name"},
	{`{"id":1,"name":"x","tag":null}`, plant.Null, "/tag"},
	{`{"id":"1","name":"x"}`, plant.NotInteger, "/id"},
	{`{"id":1.5,"name":"x"}`, plant.NotInteger, "/id"},
	{`{"id":1e-1,"name":"x"}`, plant.NotInteger, "/id"},
	{`{"id":1e-99999999999999999999,"name":"x"}`, plant.NotInteger, "/id"},
	{`{"id":1.5e-9223372036854775808,"name":"x"}`, plant.NotInteger, "/id"},
	{`{"id":0.1e0,"name":"x"}`, plant.NotInteger, "/id"},
	{`{"id":true,"name":"x"}`, plant.NotInteger, "/id"},
	{`{"id":[1],"name":"x"}`, plant.NotInteger, "/id"},
	{`{"id":{},"name":"x"}`, plant.NotInteger, "/id"},
	{`{"id":9223372036854775808,"name":"x"}`, plant.OutOfRange, "/id"},
	{`{"id":-9223372036854775809,"name":"x"}`, plant.OutOfRange, "/id"},
	{`{"id":1e19,"name":"x"}`, plant.OutOfRange, "/id"},
	{`{"id":10e18,"name":"x"}`, plant.OutOfRange, "/id"},
	{`{"id":9223372036854775.808e3,"name":"x"}`, plant.OutOfRange, "/id"},
	{`{"id":-9223372036854775.809e3,"name":"x"}`, plant.OutOfRange, "/id"},
	{`{"id":1e9223372036854775807,"name":"x"}`, plant.OutOfRange, "/id"},
	{`{"id":1e99999999999999999999,"name":"x"}`, plant.OutOfRange, "/id"},
	{`{"id":` + strings.Repeat("9", 60_000) + `,"name":"x"}`, plant.OutOfRange, "/id"},
	{`{"id":1,"name":1}`, plant.NotString, "/name"},
	{`{"id":1,"name":false}`, plant.NotString, "/name"},
	{`{"id":1,"name":["x"]}`, plant.NotString, "/name"},
	{`{"id":1,"name":"x","tag":{}}`, plant.NotString, "/tag"},
	{`{"id":1,"name":"a\u0000b"}`, plant.ZeroCharacter, "/name"},
	{`{"id":1,"name":"x","tag":"\u0000"}`, plant.ZeroCharacter, "/tag"},
}

func TestDecodeForbidden(t *testing.T) {
	for _, test := range forbidden {
		_, err := plant.Decode([]byte(test.body))
		got, ok := errors.AsType[*plant.Invalid](err)
		if !ok {
			t.Errorf("Decode(%.60q) = %v, want an *Invalid", test.body, err)
			continue
		}
		if got.Reason != test.reason || !errors.Is(err, test.reason) || got.Pointer != test.pointer {
			t.Errorf("Decode(%.60q) = reason %d at %q (%v), want reason %d at %q",
				test.body, got.Reason, got.Pointer, err, test.reason, test.pointer)
		}
		if message := err.Error(); len(message) > 250 || !utf8.ValidString(message) {
			t.Errorf("Decode(%.60q): the message %q is too long or not UTF-8", test.body, message)
		}
	}
}

// A message names the value, what is wrong with it and, where that helps, what to do.
func TestMessages(t *testing.T) {
	const integer = "id must be an integer from -9223372036854775808 to 9223372036854775807, but is "
	long := strings.Repeat("é", 16) // 32 bytes: the longest that is shown whole
	duplicate := `{"` + long + long + `":1,"` + long + long + `":1}`
	for body, want := range map[string]string{
		``:                            "the body is empty; send a JSON object",
		`{"id":1,"name":"x"`:          "the body is not complete JSON: the input ends at byte 18",
		`{"id":1,"name":"x}`:          "name is not complete JSON: the input ends at byte 18",
		`{"id":1.`:                    "id is not complete JSON: the input ends at byte 8",
		`{"name":"\u0`:                "name is not complete JSON: the input ends at byte 12",
		`{"id":1,,"name":"x"}`:        `the body is not valid JSON: unexpected ,"name":"x"} at byte 8`,
		`{"id":1,"name":"\x"}`:        `name is not valid JSON: unexpected \x"} at byte 16`,
		`{"a":{"b":x}}`:               "/a/b is not valid JSON: unexpected x}} at byte 10",
		"{\"name\":\"\xc3\xa9\xff\"}": "the body must be UTF-8, but is not at byte 11",
		"\xff":                        "the body must be UTF-8, but is not at byte 0",
		"\xef\xbb\xbf{}":              "the body starts with a byte order mark; send it without one",
		`{"name":"\ud83c!"}`:          `name has half of a surrogate pair, \ud83c, at byte 9; send both halves`,
		`{"id":1,"name":"x"} {}`:      "the body must end after the JSON object, but has {} at byte 20",
		`{"id":1,"id":1}`:             "id appears twice in its object; send it once",
		`{"a":{"b":1,"b":1}}`:         "/a/b appears twice in its object; send it once",
		strings.ReplaceAll(duplicate, long+long, long[2:]+long+"x"): "/" + long[2:] + long +
			"x appears twice in its object; send it once",
		duplicate:                                "the body has an object with a member name twice; send each name once",
		strings.Repeat("[", 10_001):              "the body has more than 10000 levels of nesting; send fewer",
		`[]`:                                     "the body must be a JSON object, but is an array",
		`"x"`:                                    `the body must be a JSON object, but is the string "x"`,
		`{"name":"x"}`:                           "id is required and must be an integer",
		`{"id":1}`:                               "name is required and must be a string",
		`{"id":null}`:                            integer + "null",
		`{"id":"1"}`:                             integer + `the string "1"`,
		`{"id":{}}`:                              integer + "an object",
		`{"id":1.5}`:                             integer + "1.5",
		`{"id":9223372036854775808}`:             integer + "9223372036854775808",
		`{"id":` + strings.Repeat("9", 32) + `}`: integer + strings.Repeat("9", 32),
		`{"id":` + strings.Repeat("9", 33) + `}`: integer + strings.Repeat("9", 32) + "…",
		`{"id":"` + long + `"}`:                  integer + `the string "` + long[:30] + "…",
		`{"name":null}`:                          "name must be a string, but is null",
		`{"tag":null}`:                           "tag must be a string, but is null; omit it for a plant without a tag",
		`{"name":1}`:                             "name must be a string, but is the number 1",
		`{"tag":true}`:                           "tag must be a string, but is true",
		`{"name":"a\u0000"}`:                     "name must not contain the character U+0000, but does at byte 1",
	} {
		if _, err := plant.Decode([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("Decode(%.60q) = %v\nwant %s", body, err, want)
		}
	}
}

func TestDecodePlant(t *testing.T) {
	const int64s = "must be an integer from -9223372036854775808 to 9223372036854775807"
	for body, want := range map[string]string{
		`{"name":"x","tag":"t"}`:               "",
		`{"name":"x","tag":"t","id":7}`:        "",
		`{"name":"x","tag":"t","\u0069d":7e0}`: "",
		`{"name":"x","tag":"t","ID":8}`:        "", // names are case-sensitive
		`{"name":"x","id":8}`:                  "id must be absent or 7, the id in the path, but is 8",
		`{"name":"x","id":-7}`:                 "id must be absent or 7, the id in the path, but is -7",
		`{"id":8}`:                             "id must be absent or 7, the id in the path, but is 8",
		`{"id":7}`:                             "name is required and must be a string",
		`{"name":"x","id":"7"}`:                `id ` + int64s + `, but is the string "7"`,
		`{"name":"x","id":null}`:               `id ` + int64s + `, but is null`,
		`{"name":"x","id":7.5}`:                `id ` + int64s + `, but is 7.5`,
		`{"name":"x","id":7,"id":7}`:           "id appears twice in its object; send it once",
	} {
		p, err := plant.DecodePlant([]byte(body), 7)
		switch {
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("DecodePlant(%s, 7) = %v, want %s", body, err, want)
		case want == "" && (err != nil || p.Name != "x" || *p.Tag != "t"):
			t.Errorf("DecodePlant(%s, 7) = %v, %v", body, p, err)
		}
	}
}

// Decoders are used again. A new one would need eleven more allocations.
func TestDecodeAllocates(t *testing.T) {
	body := []byte(`{"id":1,"name":"Fern","tag":"shade"}`)
	if n := testing.AllocsPerRun(1000, func() { plant.Decode(body) }); n > 6 { // some are dropped with -race
		t.Errorf("Decode makes %v allocations, want 2", n)
	}
}

// Every JSON number is accepted and read as in exact arithmetic.
func TestIntegersAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		literal := rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		got, err := plant.Decode([]byte(`{"id":` + literal + `,"name":""}`))
		exact, ok := new(big.Rat).SetString(literal)
		if !ok {
			t.Fatalf("%s is not a number", literal)
		}
		want := exact.IsInt() && exact.Num().IsInt64()
		if (err == nil) != want || want && got.ID != exact.Num().Int64() {
			t.Fatalf("Decode(id %s) = %d, %v; exactly it is %s", literal, got.ID, err, exact.RatString())
		}
	})
}

// An encoded plant decodes to the same plant.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 && utf8.ValidRune(r) }))
		want := plant.Plant{ID: rapid.Int64().Draw(t, "id"), Content: plant.Content{Name: text.Draw(t, "name")}}
		if rapid.Bool().Draw(t, "tagged") {
			want.Tag = tag(text.Draw(t, "tag"))
		}
		got, err := plant.Decode(want.AppendJSON(nil))
		if err != nil || got.ID != want.ID || !got.Equal(want.Content) {
			t.Fatalf("Decode(%s) = %+v, %v", want.AppendJSON(nil), got, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, test := range forbidden {
		if len(test.body) < 1000 {
			f.Add([]byte(test.body))
		}
	}
	f.Add([]byte(`{"id":1.0e2,"name":"\ud83c\udf35","tag":"x","more":[{"a":null}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := plant.Decode(body)
		if err != nil {
			invalid, ok := errors.AsType[*plant.Invalid](err)
			if !ok || invalid.Reason == 0 {
				t.Fatalf("Decode(%q) = %v: not an *Invalid with a reason", body, err)
			}
			if !utf8.ValidString(err.Error()) || len(err.Error()) > 400 {
				t.Fatalf("Decode(%q): the message %q", body, err)
			}
			return
		}
		// Another parser accepts the body too, and reads the same plant.
		var other struct {
			ID   json.Number
			Name *string
			Tag  *string
		}
		members := map[string]json.RawMessage{}
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatalf("Decode(%q) accepted what is not JSON: %v", body, err)
		}
		for name, to := range map[string]any{"id": &other.ID, "name": &other.Name, "tag": &other.Tag} {
			if raw, ok := members[name]; ok {
				if err := json.Unmarshal(raw, to); err != nil {
					t.Fatalf("Decode(%q): %s: %v", body, name, err)
				}
			}
		}
		exact, ok := new(big.Rat).SetString(other.ID.String())
		if len(other.ID) < 100 && (!ok || exact.Cmp(new(big.Rat).SetInt64(p.ID)) != 0) &&
			!strings.ContainsAny(other.ID.String(), "eE") {
			t.Fatalf("Decode(%q).ID = %d", body, p.ID)
		}
		if other.Name == nil || !p.Equal(plant.Content{Name: *other.Name, Tag: other.Tag}) {
			t.Fatalf("Decode(%q) = %+v, another parser reads %+v", body, p, other)
		}
		if strings.ContainsRune(p.Name, 0) {
			t.Fatalf("Decode(%q) accepted U+0000", body)
		}
	})
}
