package conform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Expectation is what a response must be.
type Expectation struct {
	Status  string            `json:"status,omitzero"`
	Headers map[string]string `json:"headers,omitzero"`
	JSON    string            `json:"json,omitzero"`
	Lacks   []string          `json:"lacks,omitzero"`
	Error   bool              `json:"error,omitzero"`
	Code    int               `json:"code,omitzero"`
	Field   string            `json:"field,omitzero"`
	List    bool              `json:"list,omitzero"`
	Absent  bool              `json:"absent,omitzero"`
	Items   int               `json:"items,omitzero"`
}

// unmet returns what the response lacks.
func (e Expectation) unmet(got response, variables map[string]string) (all []string) {
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	if e.Status != "" {
		status := strings.Replace(e.Status, "[^2]", "not 2", 1) // for a person
		expect(matches(e.Status, strconv.Itoa(got.status)), "status %s", status)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		want, value := e.Headers[name], strings.Join(got.header.Values(name), ", ")
		if want == "" {
			expect(value == "", "no header %s", name)
		} else {
			expect(matches(want, value), "header %s: %s", name, want)
		}
	}
	isError := e.Error || e.Code != 0 || e.Field != ""
	if !isError && e.JSON == "" && !e.List && e.Lacks == nil {
		return all
	}
	media, _, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	expect(media == "application/json", "header Content-Type: application/json")
	body, err := parse(got.body)
	expect(err == nil && utf8.Valid(got.body), "a body that is one JSON value, in UTF-8")
	object, _ := body.(map[string]any)
	_, hasMessage := object["message"].(string)
	expect(!isError || isInt32(object["error"]) && hasMessage, "an Error: error (an int32) and message (a string)")
	expect(e.Code == 0 || object["error"] == json.Number(strconv.Itoa(e.Code)), "error %d", e.Code)
	expect(e.Field == "" || object["field"] == e.Field, "field %q", e.Field)
	expect(!e.List || isList(body), "an array of Plants, each with a name that is a string")
	items, _ := body.([]any)
	expect(e.Items == 0 || len(items) == e.Items, "number of items: %d", e.Items)
	if e.JSON != "" {
		text := expand(e.JSON, variables)
		want, _ := parse([]byte(text)) // a test checks every case
		one := func(item any) bool { return contains(want, item) }
		has := contains(want, body) || e.List && slices.ContainsFunc(items, one)
		expect(has != e.Absent, "%s%s", map[bool]string{true: "no item "}[e.Absent], text)
	}
	for _, name := range e.Lacks {
		_, has := object[name]
		expect(!has, "no member %s", name)
	}
	return all
}

func matches(pattern, text string) bool {
	return regexp.MustCompile(`^(?s:` + pattern + `)$`).MatchString(text)
}

// parse returns the one JSON value of a text, with its numbers as they are written.
func parse(text []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err = d.Decode(&value); err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = fmt.Errorf("more follows the value")
		}
	}
	return value, err
}

// contains reports whether got is want, or an object with more members.
func contains(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		for name, value := range want {
			member, has := object[name]
			ok = ok && has && contains(value, member)
		}
		return ok
	case []any:
		array, ok := got.([]any)
		return ok && slices.EqualFunc(want, array, contains)
	}
	return want == got
}

func isInt32(value any) bool {
	number, _ := value.(json.Number)
	n, err := number.Int64()
	return err == nil && n >= math.MinInt32 && n <= math.MaxInt32
}

func isList(value any) bool {
	items, ok := value.([]any)
	return ok && !slices.ContainsFunc(items, func(item any) bool {
		object, _ := item.(map[string]any)
		_, hasName := object["name"].(string)
		return !hasName
	})
}
