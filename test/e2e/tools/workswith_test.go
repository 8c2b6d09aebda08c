package tools

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tools read the description, besides the generators of clients.
var tools = []struct {
	name, packageName, how string
	test                   func(t *testing.T)
}{
	{"Postman, with openapi-to-postmanv2", "openapi-to-postmanv2", postman, testPostman},
	{"Prism as a mock", "@stoplight/prism-cli", mock, testMock},
	{"Prism as a proxy", "@stoplight/prism-cli", proxy, testProxy},
	{"Swagger UI", "swagger-ui-dist", swaggerUI, func(t *testing.T) {
		testPage(t, "swagger-ui-dist/swagger-ui-bundle.js", swaggerUI, ".opblock-summary-control:not(.webhooks *)")
	}},
	{"Redoc", "redoc", redoc, func(t *testing.T) {
		testPage(t, "redoc/bundles/redoc.standalone.js", redoc, `[id*="/operation/"]`)
	}},
	{"openapi-mcp-generator", "openapi-mcp-generator", mcpGenerator, testMCP},
}

// Each generator of clients works with our description and with the public sample, and each other tool with ours.
// docs/works-with.md says so.
func TestWorksWith(t *testing.T) {
	t.Parallel()
	s := serve(t, "--sandbox")
	ours := read(t, describe(t, s, "openapi.json"))
	t.Run("all", func(t *testing.T) {
		check := func(name string, test func(t *testing.T)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
		for _, g := range generators {
			check(g.folder, func(t *testing.T) { g.check(t, s.URL, ours, strings.NewReplacer()) })
			check(g.folder+" with the sample", func(t *testing.T) { g.check(t, s.URL, sample(t), g.sample) })
		}
		for _, tool := range tools {
			check(tool.name, tool.test)
		}
	})
	if !t.Failed() {
		document(t, "## Generators of clients\n\n"+generatorTable(t)+"\n## Other tools\n\n"+toolTable(t))
	}
}

// document compares the tables with docs/works-with.md, or writes them there.
func document(t *testing.T, want string) {
	t.Helper()
	const page, begin, end = "../../../docs/works-with.md", "<!-- tables:begin -->\n", "<!-- tables:end -->"
	before, rest, _ := strings.Cut(string(read(t, page)), begin)
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

func generatorTable(t *testing.T) string {
	table := "| generator | version | command | id 2^53+1 |\n|---|---|---|---|\n"
	for _, g := range generators {
		id := "exact"
		if g.large == rounded {
			id = "rounded"
		}
		name := cmp.Or(strings.ReplaceAll(g.packages, " ", ", "), g.folder)
		table += fmt.Sprintf("| [%s](../test/e2e/tools/testdata/%s) | %s | `%s` | %s |\n", name, g.folder,
			cmp.Or(pinned(t, g.packages), oapiCodegen), g.command, id)
	}
	return table
}

func toolTable(t *testing.T) string {
	table := "| tool | version | how |\n|---|---|---|\n"
	for _, tool := range tools {
		table += fmt.Sprintf("| %s | %s | `%s` |\n", tool.name, pinned(t, tool.packageName), tool.how)
	}
	scalar := regexp.MustCompile(`\d+\.\d+\.\d+`).Find(read(t, "../../../internal/console/scalar/README.md"))
	return table + fmt.Sprintf("| [Scalar](../test/e2e/browser/reference_test.go) | %s | open `/docs` |\n", scalar)
}

// pinned returns the versions of packages.
func pinned(t *testing.T, packages string) string {
	t.Helper()
	all := decode[struct{ DevDependencies map[string]string }](t, read(t, "package.json")).DevDependencies
	versions := strings.Fields(packages)
	for i, name := range versions {
		versions[i] = all[name]
	}
	return strings.Join(slices.Compact(versions), ", ")
}
