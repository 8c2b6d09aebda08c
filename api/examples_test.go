package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Tools fill in examples, also for optional parameters, so every value has one that fits its schema.
func TestExamples(t *testing.T) {
	doc := parse(t, "openapi.sandbox.yaml") // has all
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
	for path, item := range parse(t, "openapi.sandbox.yaml").Paths.Map() { // has all
		for method, op := range item.Operations() {
			if d := op.Description; len(d) < 80 || !strings.Contains(strings.ToLower(d), "repeat") {
				t.Errorf("%s %s does not say whether it can be repeated: %q", method, path, d)
			}
		}
	}
}
