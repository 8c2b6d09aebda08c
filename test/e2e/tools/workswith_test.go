package tools

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tools read the description, besides the generators of clients.
var tools = []struct {
	name, packageName, how string
	test                   func(t *testing.T)
}{
	{"Postman", "openapi-to-postmanv2", postman, testPostman},
	{"Prism as a mock", "@stoplight/prism-cli", mock, testMock},
	{"Prism as a proxy", "@stoplight/prism-cli", proxy, testProxy},
	{"Swagger UI", "swagger-ui-dist", swaggerUI, testSwaggerUI},
	{"Redoc", "redoc", redoc, testRedoc},
	{"openapi-mcp-generator", "openapi-mcp-generator", mcpGenerator, testMCP},
}

// Each generator of clients works with our description and with the public sample, and each other tool with ours.
// docs/works-with.md says so.
func TestWorksWith(t *testing.T) {
	t.Parallel()
	s := serve(t, "--sandbox")
	ours, err := os.ReadFile(describe(t, s, "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	found := map[string]string{} // by the name of a subtest: the id that a client sent, or yes
	check := func(t *testing.T, name string, test func(t *testing.T) string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := test(t)
			mu.Lock()
			defer mu.Unlock()
			found[name] = result
		})
	}
	t.Run("all", func(t *testing.T) {
		for _, g := range generators {
			check(t, g.folder, func(t *testing.T) string { return g.check(t, s.URL, ours, strings.NewReplacer()) })
			check(t, g.folder+" with the sample", func(t *testing.T) string { return g.check(t, s.URL, sample(t), g.sample) })
		}
		for _, tool := range tools {
			check(t, tool.name, func(t *testing.T) string { tool.test(t); return "yes" })
		}
	})
	if !t.Failed() && len(found) == 2*len(generators)+len(tools) { // none was skipped
		document(t, "generators", generatorTable(t, found))
		document(t, "tools", toolTable(t))
	}
}

// document compares a table with a part of docs/works-with.md, or writes it there.
func document(t *testing.T, part, want string) {
	t.Helper()
	const page = "../../../docs/works-with.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+part+":begin -->\n", "<!-- "+part+":end -->"
	before, rest, _ := strings.Cut(string(text), begin)
	got, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no %q and %q", page, begin, end)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("%s has\n%swant, as with -update,\n%s", page, got, want)
	}
}

func generatorTable(t *testing.T, found map[string]string) string {
	table := "| generator | version | command | works with | 2^53 + 1 |\n|---|---|---|---|---|\n"
	for _, g := range generators {
		name, program, versions := g.folder, "program.ts", versions(t, strings.Fields(g.packages)...)
		if g.packages == "" {
			program, versions = "program.go.txt", oapiCodegen
		} else {
			name = strings.ReplaceAll(g.packages, " ", ", ")
		}
		table += fmt.Sprintf("| [%s](../test/e2e/tools/testdata/%s/%s) | %s | `%s` | both | %s |\n", name, g.folder,
			program, versions, g.command, found[g.folder])
	}
	return table
}

func toolTable(t *testing.T) string {
	table := "| tool | version | how |\n|---|---|---|\n"
	for _, tool := range tools {
		table += fmt.Sprintf("| %s | %s | `%s` |\n", tool.name, versions(t, tool.packageName), tool.how)
	}
	text, err := os.ReadFile("../../../internal/console/scalar/README.md")
	if err != nil {
		t.Fatal(err)
	}
	scalar := regexp.MustCompile(`\d+\.\d+\.\d+`).FindString(string(text))
	return table + "| [Scalar](../test/e2e/browser/reference_test.go) | " + scalar + " | open `/docs` of any server |\n"
}

// versions returns the versions of packages.
func versions(t *testing.T, packages ...string) string {
	t.Helper()
	text, err := os.ReadFile("package.json")
	if err != nil {
		t.Fatal(err)
	}
	pinned := decode[struct{ DevDependencies map[string]string }](t, text).DevDependencies
	var all []string
	for _, name := range packages {
		if pinned[name] == "" {
			t.Fatalf("package.json does not have %s", name)
		}
		all = append(all, pinned[name])
	}
	return strings.Join(slices.Compact(all), ", ")
}
