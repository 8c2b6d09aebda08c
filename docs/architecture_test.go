package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The code in ARCHITECTURE.md is that of a file that the paragraph before it links to: the same lines in the same
// order, where … stands for any others.
func TestExcerpts(t *testing.T) {
	parts := strings.Split(read(t, "../ARCHITECTURE.md"), "```")
	link := regexp.MustCompile(`\]\((internal/[^)]+\.go)\)`)
	if len(parts) < 10 {
		t.Fatalf("ARCHITECTURE.md has %d parts", len(parts))
	}
	for i := 1; i < len(parts); i += 2 {
		excerpt, found := strings.TrimPrefix(parts[i], "go\n"), false
		for _, m := range link.FindAllStringSubmatch(parts[i-1], -1) {
			found = found || contains(read(t, "../"+m[1]), excerpt)
		}
		if !found {
			t.Errorf("no file that is linked before it contains\n%s", excerpt)
		}
	}
}

// contains reports whether text has the parts of an excerpt, separated by lines with …, in their order.
func contains(text, excerpt string) bool {
	for part := range strings.SplitSeq(excerpt, "\t…\n") {
		_, after, ok := strings.Cut(text, part)
		if !ok {
			return false
		}
		text = after
	}
	return true
}

// The table of packages has those of imports_test.go, with what they may import.
func TestPackageTable(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\| [^|]+ \\| ((?:`[a-z/]+` ?)*)\\|$")
	got := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(read(t, "../ARCHITECTURE.md"), -1) {
		got[m[1]] = strings.Fields(strings.ReplaceAll(m[2], "`", ""))
	}
	want := allowedImports(t)
	for name, imports := range want {
		slices.Sort(imports)
		slices.Sort(got[name])
		if _, ok := got[name]; !ok || !slices.Equal(got[name], imports) {
			t.Errorf("ARCHITECTURE.md: %s may import %q, want %q", name, got[name], imports)
		}
	}
	if len(got) != len(want) {
		t.Errorf("ARCHITECTURE.md has %d packages, want %d", len(got), len(want))
	}
}

// allowedImports reads mayImport of imports_test.go. Names are without internal/.
func allowedImports(t *testing.T) map[string][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../internal/server/imports_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var table *ast.CompositeLit
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && v.Names[0].Name == "mayImport" {
			table = v.Values[0].(*ast.CompositeLit)
		}
		return table == nil
	})
	if table == nil {
		t.Fatal("imports_test.go has no mayImport")
	}
	all := map[string][]string{}
	for _, e := range table.Elts {
		var texts []string
		ast.Inspect(e, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, strings.ReplaceAll(text, "internal/", ""))
			}
			return true
		})
		all[texts[0]] = strings.Fields(strings.Join(texts[1:], ""))
	}
	return all
}
