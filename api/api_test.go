package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oasdiff/oasdiff/checker"
	"github.com/oasdiff/oasdiff/diff"
	"github.com/oasdiff/oasdiff/flatten/allof"
	"github.com/oasdiff/oasdiff/load"
	"github.com/russross/blackfriday/v2"
	"go.yaml.in/yaml/v4"

	"plantstore/api"
	"plantstore/internal/httpapi"
	"plantstore/test/testkit"
)

var update = flag.Bool("update", false,
	"write the generated parts: the errors of docs/errors.md in openapi.yaml, other descriptions, and pages of text")

// The errors in the documents are those of the code, and the other descriptions follow from the hand-written files.
func TestGenerated(t *testing.T) {
	description := read(t, "openapi.yaml")
	describe := func(rows []string) string {
		return between(t, description, "      examples: [40009]\n", "  headers:\n", errorCodes(rows))
	}
	rows, ofSandboxes, _ := strings.Cut(read(t, "../docs/errors.md"), "Only a server with `serve --sandbox` returns")
	plain := describe(errorRows(rows))
	check(t, "openapi.yaml", plain)
	check(t, "openapi.json", toJSON(t, plain))
	all := slices.Sorted(slices.Values(slices.Concat(errorRows(rows), errorRows(ofSandboxes))))
	sandbox := withSandboxes(t, describe(all), read(t, "sandbox.yaml"))
	check(t, "openapi.sandbox.yaml", sandbox)
	check(t, "openapi.sandbox.json", toJSON(t, sandbox))
	check(t, "conform.json", toJSON(t, read(t, "conform.yaml")))
	for _, name := range []string{"Errors", "Bodies"} {
		path := strings.ToLower(name)
		html := blackfriday.NewHTMLRenderer(blackfriday.HTMLRendererParameters{})
		text := blackfriday.Run([]byte(read(t, "../docs/"+path+".md")), blackfriday.WithRenderer(html))
		text = regexp.MustCompile("<tr>\n<td>([0-9]{5})").ReplaceAll(text, []byte("<tr id=\"$1\">\n<td>$1")) // for links
		page := between(t, read(t, "testdata/page.html"), "<main>\n", "</main>\n", string(text))
		check(t, "../internal/console/assets/"+path+".html", testkit.ReplaceOnce(t, page, "TITLE", name))
	}
	if strings.Contains(strings.ToLower(plain), "sandbox") {
		t.Error("openapi.yaml describes sandboxes")
	}
	for i, f := range httpapi.Catalogue() {
		want := regexp.MustCompile(fmt.Sprintf(`^\| %d \| [A-Z][A-Za-z0-9]+ \| %s \| .+\. \|$`, f.Number,
			regexp.QuoteMeta(f.Meaning)))
		if i >= len(all) || !want.MatchString(all[i]) {
			t.Fatalf("docs/errors.md has no row %s", want)
		}
	}
	if got, want := len(all), len(httpapi.Catalogue()); got != want {
		t.Errorf("docs/errors.md has %d errors, the service %d", got, want)
	}
}

// errorRows returns the rows of a table of errors.
func errorRows(page string) []string {
	isNoRow := func(line string) bool { return !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| error") }
	return slices.DeleteFunc(strings.Split(page, "\n"), isNoRow)
}

// errorCodes returns the numbers, names and meanings of rows, as generators of clients read them.
func errorCodes(rows []string) string {
	var numbers, names, meanings string
	for _, row := range rows {
		columns := strings.Split(row, " | ")
		numbers += "        - " + strings.TrimPrefix(columns[0], "| ") + "\n"
		names += "        - " + columns[1] + "\n"
		meanings += fmt.Sprintf("        - %q\n", columns[2])
	}
	return "      enum:\n" + numbers + "      x-enum-varnames:\n" + names + "      x-enum-descriptions:\n" + meanings
}

// between puts a part into text, after the first occurrence of start and before the next of end.
func between(t *testing.T, text, start, end, part string) string {
	t.Helper()
	head, rest, found := strings.Cut(text, start)
	_, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("there is no %q before %q", start, end)
	}
	return head + start + part + end + tail
}

func check(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, path) != want {
		t.Errorf("%s is out of date; run: make generate", path)
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

// withSandboxes merges sandbox.yaml, which starts with the rules for that, into the description of other servers.
func withSandboxes(t *testing.T, description, additions string) string {
	var to, from yaml.Node
	if err := errors.Join(yaml.Unmarshal([]byte(description), &to), yaml.Unmarshal([]byte(additions), &from)); err != nil {
		t.Fatal(err)
	}
	merge(t, to.Content[0], from.Content[0])
	text, err := yaml.Dump(&to, yaml.WithV4Defaults(), yaml.WithCompactSeqIndent(false), yaml.WithLineWidth(120))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func merge(t *testing.T, to, from *yaml.Node) {
	switch kinds := [2]yaml.Kind{to.Kind, from.Kind}; kinds {
	case [2]yaml.Kind{yaml.ScalarNode, yaml.ScalarNode}:
		*to = *from
	case [2]yaml.Kind{yaml.ScalarNode, yaml.MappingNode}:
		for i := 0; i < len(from.Content); i += 2 {
			to.Value = testkit.ReplaceOnce(t, to.Value, from.Content[i].Value, from.Content[i+1].Value)
		}
	case [2]yaml.Kind{yaml.MappingNode, yaml.MappingNode}:
		for i := 0; i < len(from.Content); i += 2 {
			if value := member(to, from.Content[i].Value); value != nil {
				merge(t, value, from.Content[i+1])
			} else {
				to.Content = append(to.Content, from.Content[i:i+2]...)
			}
		}
	case [2]yaml.Kind{yaml.SequenceNode, yaml.SequenceNode}:
		for _, item := range from.Content {
			name := member(item, "name")
			same := slices.IndexFunc(to.Content, func(n *yaml.Node) bool {
				other := member(n, "name")
				return name != nil && other != nil && name.Value == other.Value
			})
			if same >= 0 {
				merge(t, to.Content[same], item)
			} else {
				to.Content = append(to.Content, item)
			}
		}
	default:
		t.Fatalf("sandbox.yaml, line %d: the value does not fit that in openapi.yaml", from.Line)
	}
}

// member returns the value of a key of a mapping, or nil.
func member(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; mapping.Kind == yaml.MappingNode && i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// toJSON keeps the order of the members, so that both files have the same order.
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
			t.Fatalf("line %d: %s has the type %s, which this test can't convert to JSON", n.Line, n.Value, n.ShortTag())
		}
	default:
		t.Fatalf("line %d: this test can't convert the node to JSON", n.Line)
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
	const base = "https://plants.example/v"
	for _, sandbox := range []bool{false, true} {
		for _, name := range []string{"json", "yaml"} {
			text := api.Description(name, base, sandbox)
			if !bytes.Contains(text, []byte(base)) || bytes.Contains(text, []byte("127.0.0.1")) ||
				bytes.Contains(text, []byte("/sandboxes")) != sandbox {
				t.Errorf("the %s description with sandboxes: %t is not that of the server %s", name, sandbox, base)
			}
		}
	}
}

// variants are the published descriptions: of a server without sandboxes, and of one with them.
var variants = []string{"openapi.yaml", "openapi.sandbox.yaml"}

// A description has exactly the operations that its server has.
func TestRoutes(t *testing.T) {
	for _, path := range variants {
		others := func(r httpapi.Route) bool { return r.Sandbox && path == "openapi.yaml" }
		testRoutes(t, parse(t, path), slices.DeleteFunc(httpapi.Routes(), others))
	}
}

func testRoutes(t *testing.T, doc *openapi3.T, routes []httpapi.Route) {
	var described []string
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			open := op.Security != nil && len(*op.Security) == 0
			described = append(described, fmt.Sprint(method, " ", path, " credential:", !open))
		}
	}
	var served []string
	for _, r := range routes {
		served = append(served, fmt.Sprint(r.Method, " ", r.Path, " credential:", r.Scope != 0))
		op := doc.Paths.Find(r.Path)
		if op == nil || r.Scope == 0 || r.Scope == httpapi.AnyScope {
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
	if words := len(strings.Fields(doc.Info.Description)); words > 400 {
		t.Errorf("%s: the introduction has %d words, want at most 400, so that readers see the operations", path, words)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return doc
}

// narrowed are the rules that the description adds to the contract, each for the reason in docs/decisions.md:
// no engine stores U+0000, and an int64 has bounds.
var narrowed = []string{
	"request-property-pattern-added: added the pattern `^[^\\x00]*$` to the request property `name`",
	"request-property-pattern-added: added the pattern `^[^\\x00]*$` to the request property `tag`",
	"request-property-max-set: the `id` request property's max was set to `9223372036854775808.00`", // as a float shows it
	"request-property-min-set: the `id` request property's min was set to `-9223372036854775808.00`",
}

// A client of the contract can use the published API, and one of a server without sandboxes another with them.
func TestContract(t *testing.T) {
	for _, path := range variants {
		for _, change := range breaking(t, read(t, "contract.yaml"), read(t, path), narrowed) {
			t.Errorf("%s: %s", path, change)
		}
	}
	for _, change := range breaking(t, read(t, "openapi.yaml"), read(t, "openapi.sandbox.yaml"), nil) {
		t.Error(change)
	}
}

// narrowedSample are the rules that the description adds to the other operations of the public sample.
var narrowedSample = []string{
	"request-parameter-min-set: for the `query` request parameter `limit`, the min was set to `1.00`",
}

// A client of the public sample can use the published API: its create, list and remove. The webhook is described in
// the words of the sample.
func TestPublicSample(t *testing.T) {
	allowed, sample := append(narrowedSample, narrowed...), read(t, "testdata/sample.yaml")
	for _, path := range variants {
		for _, change := range breaking(t, sample, read(t, path), allowed) {
			t.Errorf("%s: %s", path, change)
		}
		if got, want := webhooks(t, read(t, path)), webhooks(t, sample); got != want || len(want) < 200 {
			t.Errorf("%s: the webhooks are %s, want %s", path, got, want)
		}
	}
}

// webhooks returns that section of a description as JSON.
func webhooks(t *testing.T, description string) string {
	t.Helper()
	var doc struct{ Webhooks any }
	if err := yaml.Unmarshal([]byte(description), &doc); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(doc.Webhooks)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The comparison detects breaking changes.
func TestContractDetectsBreakingChanges(t *testing.T) {
	published := read(t, "openapi.yaml")
	for _, mutation := range []struct{ name, from, to string }{
		{"a required tag", "required: [name]\n", "required: [name, tag]\n"},
		{"a new required member", "required: [id]\n          properties:\n",
			"required: [id, colour]\n          properties:\n            colour: {type: string}\n"},
		{"a short name", "unchanged.\n          type: string\n          pattern: '^[^\\x00]*$'",
			"unchanged.\n          type: string\n          pattern: '^[a-z]{1,3}$'"},
		{"create moved away", "  /plants:\n    post:", "  /plant:\n    post:"},
		{"another status for success", "        \"200\":\n          description: The plant is on disk.",
			"        \"201\":\n          description: The plant is on disk."},
	} {
		mutant := strings.Replace(published, mutation.from, mutation.to, 1)
		if mutant == published {
			t.Errorf("%s: the mutation did not change anything", mutation.name)
		}
		if len(breaking(t, read(t, "contract.yaml"), mutant, narrowed)) == 0 {
			t.Errorf("%s: not detected", mutation.name)
		}
	}
}

// newNumber is an error number that an earlier description does not have. The catalogue can grow, which ErrorCode says,
// and for the specification and the sample a list of the numbers only narrows the responses.
var newNumber = regexp.MustCompile(
	"^response-property-enum-value-added: added the new `[45][0-9]{4}\\.00` enum value to the `error` response property ")

// breaking returns the changes that can break a client of an earlier description, without the allowed ones.
func breaking(t *testing.T, earlier, published string, allowed []string) []string {
	t.Helper()
	load1 := func(text string) *load.SpecInfo {
		doc, err := openapi3.NewLoader().LoadFromData([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		// A NewPlant contains a Plant: without merging the two, changes of the Plant are not detected.
		if doc, err = allof.MergeSpec(doc); err != nil {
			t.Fatal(err)
		}
		return &load.SpecInfo{Spec: doc}
	}
	config := diff.NewConfig()
	report, sources, err := diff.GetWithOperationsSourcesMap(config, load1(earlier), load1(published))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	checks := checker.NewConfig(checker.GetAllChecks())
	for _, change := range checker.CheckBackwardCompatibilityUntilLevel(checks, report, sources, checker.WARN) {
		text := fmt.Sprintf("%s: %s", change.GetId(), change.GetUncolorizedText(checker.NewDefaultLocalizer()))
		if !slices.Contains(allowed, text) && !newNumber.MatchString(text) {
			found = append(found, text)
		}
	}
	return found
}
