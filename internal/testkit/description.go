package testkit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"plantstore/api"
)

// Check fails the test if the response is not one that the description has for the request, or if a
// request that the description forbids returned 200.
func Check(t testing.TB, r *http.Request, body string, a Response) {
	t.Helper()
	if a.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s %s: %d without X-Request-Id", r.Method, r.URL.Path, a.Status)
	}
	if a.Status == http.StatusNotFound && a.Number() == 40402 || a.Status == http.StatusMethodNotAllowed {
		return // about a path or method that is not described; the caller checks its body
	}
	op, err := description().operation(r)
	if err != nil {
		t.Error(err)
		return
	}
	if a.Status == http.StatusOK && body != "" {
		if err := op.request(r, body); err != nil {
			t.Errorf("%s %s: %.200s returned 200, and the description does not allow it: %v", r.Method, r.URL.Path, body, err)
		}
	}
	if err := op.response(a); err != nil {
		t.Errorf("%s %s: %d %.200s is not a described response: %v", r.Method, r.URL.Path, a.Status, a.Body, err)
	}
}

// Allows reports whether the description allows a create with this body.
func Allows(t testing.TB, body []byte) bool {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return description().schema("/components/schemas/NewPlant").Validate(value) == nil
}

const descriptionURL = "openapi.json"

// openapi is the published description. A schema of OpenAPI 3.1 is a JSON Schema, which a validator with exact
// numbers evaluates; the rest of the description that this service uses is small enough to read directly.
type openapi struct {
	document any
	mu       sync.Mutex // guards the rest
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by pointer
}

var description = sync.OnceValue(func() *openapi { return newDescription(api.JSON("http://plants.example")) })

func newDescription(text []byte) *openapi {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	d := &openapi{document: document, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	if err := d.compiler.AddResource(descriptionURL, document); err != nil {
		panic(err)
	}
	return d
}

func (d *openapi) schema(pointer string) *jsonschema.Schema {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.schemas[pointer] == nil {
		d.schemas[pointer] = d.compiler.MustCompile(descriptionURL + "#" + pointer)
	}
	return d.schemas[pointer]
}

// node is an object of the description and its JSON pointer.
type node struct {
	*openapi
	pointer string
	members map[string]any
}

func (d *openapi) root() node { return node{d, "", d.document.(map[string]any)} }

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

// at returns the object below n, and follows references.
func (n node) at(names ...string) (node, bool) {
	for _, name := range names {
		members, ok := n.members[name].(map[string]any)
		if !ok {
			return node{}, false
		}
		n = node{n.openapi, n.pointer + "/" + escapePointer.Replace(name), members}.resolve()
	}
	return n, true
}

func (n node) resolve() node {
	reference, ok := n.members["$ref"].(string)
	if !ok {
		return n
	}
	n, ok = n.root().at(strings.Split(strings.TrimPrefix(reference, "#/"), "/")...)
	if !ok {
		panic("the description has no " + reference)
	}
	return n
}

// each returns the objects of an array below n, with references followed.
func (n node) each(name string) (all []node) {
	list, _ := n.members[name].([]any)
	for i, element := range list {
		pointer := fmt.Sprintf("%s/%s/%d", n.pointer, name, i)
		all = append(all, node{n.openapi, pointer, element.(map[string]any)}.resolve())
	}
	return all
}

// validate checks a value against the schema of n. A text that is not JSON itself, as in a header, is
// converted to the type of the schema first.
func (n node) validate(value any) error {
	schema, ok := n.at("schema")
	if !ok {
		return nil
	}
	if text, ok := value.(string); ok && schema.members["type"] == "integer" {
		value = json.Number(text)
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return err
		}
	}
	return n.schema(schema.pointer).Validate(value)
}

// content checks a body against the media type that n describes for it.
func (n node) content(contentType, body string) error {
	name, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("Content-Type %q: %w", contentType, err)
	}
	media, ok := n.at("content", name)
	if !ok {
		return fmt.Errorf("the Content-Type %s is not described", name)
	}
	if name != "application/json" {
		return media.validate(body)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		return err
	}
	return n.schema(media.pointer + "/schema").Validate(value)
}

// operation is the description of a method of a path.
type operation struct {
	node
	item node // of the path
	path string
}

func (d *openapi) operation(r *http.Request) (operation, error) {
	paths, _ := d.root().at("paths")
	for path := range paths.members {
		item, _ := paths.at(path)
		op, ok := item.at(strings.ToLower(r.Method))
		if _, matches := values(path, r.URL.Path); ok && matches {
			return operation{op, item, path}, nil
		}
	}
	return operation{}, fmt.Errorf("%s %s is not described", r.Method, r.URL.Path)
}

// values returns the segments of a path that the template, such as /plants/{id}, has names for.
func values(template, path string) (map[string]string, bool) {
	names, segments := strings.Split(template, "/"), strings.Split(path, "/")
	found := map[string]string{}
	for i, name := range names {
		if len(names) != len(segments) {
			return nil, false
		}
		if strings.HasPrefix(name, "{") && segments[i] != "" {
			found[strings.Trim(name, "{}")] = segments[i]
		} else if name != segments[i] {
			return nil, false
		}
	}
	return found, true
}

// request returns why the description forbids a request, or nil.
func (op operation) request(r *http.Request, body string) error {
	inPath, _ := values(op.path, r.URL.Path)
	for _, p := range append(op.item.each("parameters"), op.each("parameters")...) {
		name := p.members["name"].(string)
		var given []string
		switch p.members["in"] {
		case "path":
			given = []string{inPath[name]}
		case "query":
			given = r.URL.Query()[name]
		case "header":
			given = r.Header.Values(name)
		default:
			return fmt.Errorf("the tests cannot evaluate the parameter %s in %v", name, p.members["in"])
		}
		if len(given) == 0 && p.members["required"] == true {
			return fmt.Errorf("the parameter %s is missing", name)
		}
		for _, value := range given {
			if err := p.validate(value); err != nil {
				return fmt.Errorf("the parameter %s: %w", name, err)
			}
		}
	}
	if op.needsCredential() && !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
		return errors.New("the credential is missing")
	}
	described, ok := op.at("requestBody")
	if !ok {
		return errors.New("no body is described")
	}
	return described.content(cmp.Or(r.Header.Get("Content-Type"), "application/json"), body)
}

// needsCredential reports whether the operation does not override the general security with an empty list.
func (op operation) needsCredential() bool {
	own, ok := op.members["security"].([]any)
	return !ok || len(own) > 0
}

// response returns why the description does not have a response, or nil.
func (op operation) response(a Response) error {
	described, ok := op.at("responses", strconv.Itoa(a.Status))
	if !ok {
		return errors.New("the status is not described")
	}
	headers, _ := described.at("headers")
	for name := range headers.members {
		header, _ := headers.at(name)
		if header.members["required"] == true && len(a.Header.Values(name)) == 0 {
			return fmt.Errorf("the header %s is missing", name)
		}
		for _, value := range a.Header.Values(name) {
			if err := header.validate(value); err != nil {
				return fmt.Errorf("the header %s: %w", name, err)
			}
		}
	}
	if _, ok := described.members["content"]; !ok {
		if a.Body != "" {
			return errors.New("no body is described")
		}
		return nil
	}
	return described.content(a.Header.Get("Content-Type"), a.Body)
}
