package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oasdiff/oasdiff/checker"
	"github.com/oasdiff/oasdiff/diff"
	"github.com/oasdiff/oasdiff/flatten/allof"
	"github.com/oasdiff/oasdiff/load"
	"go.yaml.in/yaml/v4"

	"plantstore/api"
	"plantstore/internal/httpapi"
)

var update = flag.Bool("update", false, "write the generated parts: the catalogue in openapi.yaml and docs/errors.md, and openapi.json")

// TestGenerated holds what stands in two places to one of them: the catalogue to the table in
// code, the JSON to the YAML.
func TestGenerated(t *testing.T) {
	description := read(t, "openapi.yaml")
	head, rest, ok := strings.Cut(description, "    |---|---|---|\n")
	if !ok {
		t.Fatal("openapi.yaml has no table of errors")
	}
	_, tail, ok := strings.Cut(rest, "servers:\n")
	if !ok {
		t.Fatal("openapi.yaml has no servers")
	}
	rows := func(indent string) string {
		var b strings.Builder
		for _, f := range httpapi.Catalogue() {
			fmt.Fprintf(&b, "%s| %d | %s | %s |\n", indent, f.Number, f.Meaning, f.Remedy)
		}
		return b.String()
	}
	description = head + "    |---|---|---|\n" + rows("    ") + "servers:\n" + tail
	check(t, "openapi.yaml", description)
	check(t, "openapi.json", toJSON(t, description))
	check(t, "../docs/errors.md", errorsPage+rows(""))
}

const errorsPage = `# Errors

Every answer with a body that is not 200 is an Error: ` + "`{\"error\": 40013, \"message\": \"/id: expected …, found …\"}`" + `.

` + "`error`" + ` is the HTTP status × 100 + n; a number never changes its meaning, so a program can switch on it.
` + "`message`" + ` is for a person: where (a JSON Pointer or a header), what was expected, what was found. Its words may change.

A 429 and a 503 carry ` + "`Retry-After`" + `. A create can be repeated after any answer, or none: the same id with the same
name and tag is 200 again and stores nothing.

| error | meaning | what to do |
|---|---|---|
`

func check(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, path) != want {
		t.Errorf("%s is not what the code says; run: make generate", path)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// toJSON keeps the order of the members, so that the two files read alike.
func toJSON(t *testing.T, text string) string {
	t.Helper()
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(text), &node); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	writeNode(t, &b, &node)
	var indented bytes.Buffer
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	return indented.String() + "\n"
}

func writeNode(t *testing.T, b *bytes.Buffer, n *yaml.Node) {
	switch n.Kind {
	case yaml.DocumentNode:
		writeNode(t, b, n.Content[0])
	case yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			writeScalar(t, b, n.Content[i].Value)
			b.WriteByte(':')
			writeNode(t, b, n.Content[i+1])
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, c := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			writeNode(t, b, c)
		}
		b.WriteByte(']')
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!int", "!!bool":
			b.WriteString(n.Value)
		case "!!str":
			writeScalar(t, b, n.Value)
		default:
			t.Fatalf("line %d: %s is of the kind %s, which this test does not turn into JSON", n.Line, n.Value, n.ShortTag())
		}
	default:
		t.Fatalf("line %d: a node that this test does not turn into JSON", n.Line)
	}
}

func writeScalar(t *testing.T, b *bytes.Buffer, text string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		t.Fatal(err)
	}
}

func TestServedDescriptionNamesTheServer(t *testing.T) {
	for name, text := range map[string][]byte{"JSON": api.JSON("https://plants.example/v"), "YAML": api.YAML("https://plants.example/v")} {
		if !bytes.Contains(text, []byte("https://plants.example/v")) || bytes.Contains(text, []byte("127.0.0.1")) {
			t.Errorf("the %s description does not name the server that it is asked to", name)
		}
	}
}

// TestRoutes: every operation that is described is served and every one that is served is described.
func TestRoutes(t *testing.T) {
	doc := parse(t, "openapi.yaml")
	var described []string
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			open := op.Security != nil && len(*op.Security) == 0
			described = append(described, fmt.Sprint(method, " ", path, " credential:", !open))
		}
	}
	var served []string
	for _, r := range httpapi.Routes() {
		served = append(served, fmt.Sprint(r.Method, " ", r.Path, " credential:", r.Scope != 0))
		op := doc.Paths.Find(r.Path)
		if op == nil || r.Scope == 0 {
			continue
		}
		if d := op.GetOperation(r.Method).Description; !strings.Contains(d, "`"+r.Scope.String()+"`") {
			t.Errorf("the description of %s %s does not name its scope %s", r.Method, r.Path, r.Scope)
		}
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("described:\n%s\nserved:\n%s", strings.Join(described, "\n"), strings.Join(served, "\n"))
	}
}

func parse(t *testing.T, path string) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// narrowed is what the description forbids and the contract does not mention, each for the reason in
// docs/decisions.md: no engine keeps U+0000, and an int64 has bounds.
var narrowed = []string{
	"request-property-pattern-added: added the pattern `^[^\\x00]*$` to the request property `name`",
	"request-property-pattern-added: added the pattern `^[^\\x00]*$` to the request property `tag`",
	"request-property-max-set: the `id` request property's max was set to `9223372036854775808.00`", // as a float shows it
	"request-property-min-set: the `id` request property's min was set to `-9223372036854775808.00`",
}

// TestContract: whoever was made for the contract can use what is published.
func TestContract(t *testing.T) {
	for _, change := range breaking(t, read(t, "openapi.yaml")) {
		t.Error(change)
	}
}

// TestContractIsHeld proves that the comparison can fail.
func TestContractIsHeld(t *testing.T) {
	published := read(t, "openapi.yaml")
	for _, mutation := range []struct{ name, from, to string }{
		{"a tag that must be sent", "required: [name]\n", "required: [name, tag]\n"},
		{"a new member that must be sent", "required: [id]\n          properties:\n", "required: [id, colour]\n          properties:\n            colour: {type: string}\n"},
		{"a name that may be missing in the answer", "required: [name]\n", "required: []\n"},
		{"another type of id", "type: integer\n              format: int64\n", "type: string\n"},
		{"a name of few letters", `^[^\x00]*$`, `^[a-z]{1,3}$`},
		{"a smallest id", "minimum: -9223372036854775808\n              maximum", "minimum: 1\n              maximum"},
		{"a largest id", "maximum: 9223372036854775807\n    StoredPlant", "maximum: 10\n    StoredPlant"},
		{"create moved away", "  /plants:\n    post:", "  /plant:\n    post:"},
		{"success with another status", "        \"200\":\n          description: The plant is on disk.", "        \"201\":\n          description: The plant is on disk."},
	} {
		mutant := strings.Replace(published, mutation.from, mutation.to, 1)
		if mutant == published {
			t.Errorf("%s: the mutation did not change anything", mutation.name)
		}
		if len(breaking(t, mutant)) == 0 {
			t.Errorf("%s: not noticed", mutation.name)
		}
	}
}

func breaking(t *testing.T, published string) []string {
	t.Helper()
	load1 := func(text string) *load.SpecInfo {
		doc, err := openapi3.NewLoader().LoadFromData([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		// A NewPlant is a Plant and more: without merging the two, changes in there go unnoticed.
		if doc, err = allof.MergeSpec(doc); err != nil {
			t.Fatal(err)
		}
		return &load.SpecInfo{Spec: doc}
	}
	config := diff.NewConfig()
	report, sources, err := diff.GetWithOperationsSourcesMap(config, load1(read(t, "contract.yaml")), load1(published))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, change := range checker.CheckBackwardCompatibilityUntilLevel(checker.NewConfig(checker.GetAllChecks()), report, sources, checker.WARN) {
		said := fmt.Sprintf("%s: %s", change.GetId(), change.GetUncolorizedText(checker.NewDefaultLocalizer()))
		if !slices.Contains(narrowed, said) {
			found = append(found, said)
		}
	}
	return found
}
