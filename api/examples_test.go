package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"plantstore/internal/httpapi"
)

// Tools fill in examples, also for optional parameters, so every value has one that fits its schema.
func TestExamples(t *testing.T) {
	doc := parse(t, "openapi.yaml")
	if err := doc.Validate(context.Background()); err != nil {
		t.Error(err)
	}
	for where, media := range bodies(doc) {
		examples := []any{media.Example}
		for _, e := range media.Examples {
			examples = append(examples, e.Value.Value)
		}
		examples = slices.DeleteFunc(examples, func(v any) bool { return v == nil })
		if len(examples) == 0 {
			t.Errorf("%s has no example", where)
		}
		for _, e := range examples {
			if err := media.Schema.Value.VisitJSON(e); err != nil {
				t.Errorf("%s: the example %v: %v", where, e, err)
			}
			if err := fits(where, e); err != nil {
				t.Errorf("%s: the example %v: %v", where, e, err)
			}
		}
	}
	for where, p := range parameters(doc) {
		if p.Example == nil {
			t.Errorf("%s has no example", where)
		}
	}
	for name, schema := range doc.Components.Schemas {
		for _, s := range append(schema.Value.AllOf, schema) {
			for property, v := range s.Value.Properties {
				if v.Value.Type.Is("array") {
					v = v.Value.Items
				}
				if len(v.Value.Examples) == 0 {
					t.Errorf("%s.%s has no examples", name, property)
				}
			}
		}
	}
}

// fits checks that the number of an Error is in the catalogue and belongs to the status of the response.
func fits(where string, example any) error {
	_, status, _ := strings.Cut(where, "response ")
	code, _ := strconv.Atoi(status) // 0 for a request
	if code < 400 {
		return nil
	}
	text, err := json.Marshal(example)
	if err != nil {
		return err
	}
	var e struct {
		Error   int32
		Message string
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	if !slices.ContainsFunc(httpapi.Catalogue(), func(f httpapi.Failure) bool { return f.Number == e.Error }) {
		return fmt.Errorf("the catalogue has no %d", e.Error)
	}
	if int(e.Error)/100 != code || e.Message == "" {
		return fmt.Errorf("not an Error of status %d", code)
	}
	return nil
}

// bodies returns every body of a request or response.
func bodies(doc *openapi3.T) map[string]*openapi3.MediaType {
	all := map[string]*openapi3.MediaType{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			where := method + " " + path + ": "
			if op.RequestBody != nil {
				all[where+"request"] = op.RequestBody.Value.Content["application/json"]
			}
			for status, r := range op.Responses.Map() {
				for _, media := range r.Value.Content {
					all[where+"response "+status] = media
				}
			}
		}
	}
	return all
}

// parameters returns every parameter of a request, and every header of a response.
func parameters(doc *openapi3.T) map[string]*openapi3.Parameter {
	all := map[string]*openapi3.Parameter{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			where := method + " " + path + ": "
			for _, p := range append(item.Parameters, op.Parameters...) {
				all[where+p.Value.Name] = p.Value
			}
			for status, r := range op.Responses.Map() {
				for name, h := range r.Value.Headers {
					all[where+status+" "+name] = &h.Value.Parameter
				}
			}
		}
	}
	return all
}

// A client that sees only one operation learns what it does and whether it can be repeated.
func TestOperationsAreDescribed(t *testing.T) {
	for path, item := range parse(t, "openapi.yaml").Paths.Map() {
		for method, op := range item.Operations() {
			if d := op.Description; len(d) < 80 || !strings.Contains(strings.ToLower(d), "repeat") {
				t.Errorf("%s %s does not say whether it can be repeated: %q", method, path, d)
			}
		}
	}
}

// The page starts with a first request, and the long table stands at its end.
func TestSections(t *testing.T) {
	var got []string
	for line := range strings.Lines(parse(t, "openapi.yaml").Info.Description) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			got = append(got, strings.TrimSpace(name))
		}
	}
	want := []string{"First request", "Authentication", "Paging", "Searching", "Errors", "Limits", "Bodies",
		"The public sample", "Error codes"}
	if !slices.Equal(got, want) {
		t.Errorf("the sections are %q, want %q", got, want)
	}
}
