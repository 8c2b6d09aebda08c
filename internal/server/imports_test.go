package server_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// mayImport is which of our packages each of our packages may import: the table of ARCHITECTURE.md, with the folder
// internal in front of names that have none. Features that can be deleted without touching the path of a create
// (console, telemetry, client) are imported only where they are wired.
var mayImport = sync.OnceValue(func() map[string][]string {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		panic(err)
	}
	row := regexp.MustCompile("(?m)^\\| (`[a-z/]+`) \\| [^|]+ \\|((?: `[a-z/]+`)*) \\|$")
	name := regexp.MustCompile("[a-z/]+")
	all := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		var names []string
		for _, n := range name.FindAllString(m[1]+m[2], -1) {
			if first, _, _ := strings.Cut(n, "/"); !slices.Contains([]string{"api", "client", "cmd", "deploy"}, first) {
				n = "internal/" + n
			}
			names = append(names, n)
		}
		all[names[0]] = names[1:]
	}
	return all
})

// testPackages are only for tests, so that no package above may import them.
var testPackages = []string{"docs", "test", "internal/storage/postgres/pgtest"}

// storageNames is what these packages may use of storage: its errors and page bounds, never its interfaces.
var storageNames = map[string]func(name string) bool{
	"internal/commit": func(name string) bool { return strings.HasPrefix(name, "Err") },
	"internal/httpapi": func(name string) bool {
		return strings.HasPrefix(name, "Err") || name == "PageBytes" || name == "FirstAfter"
	},
}

// libraries is which packages may use what is not the standard library. The domain uses one, for JSON, until that is
// in the standard library.
var libraries = map[string]string{
	"github.com/go-json-experiment/json": "internal/plant internal/httpapi internal/sandbox internal/token/oidc " +
		"internal/webhook cmd/plantstore",
	"zombiezen.com/go/sqlite":  "internal/storage/sqlite",
	"modernc.org/sqlite":       "internal/storage/sqlite",
	"golang.org/x/sys":         "internal/storage/sqlite",
	"golang.org/x/crypto/acme": "internal/certificate",
	"golang.org/x/net/idna":    "cmd/plantstore",
	"golang.org/x/sync": "internal/conform internal/dbcopy internal/plantfile internal/share " +
		"internal/telemetry internal/token internal/storage/citus",
	"github.com/spf13/cobra": "cmd/plantstore",
	"github.com/spf13/pflag": "cmd/plantstore",
	"github.com/jackc/pgx/v5": "internal/storage/postgres " +
		"internal/storage/postgres/pgtest internal/storage/citus",
	"github.com/google/licensecheck":      "deploy/release",
	"github.com/coreos/go-systemd/v22":    "internal/systemd",
	"github.com/go-jose/go-jose/v4":       "internal/token/oidc",
	"github.com/prometheus/client_golang": "internal/telemetry",
	"go.opentelemetry.io":                 "internal/telemetry",
}

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "plantstore/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for path := range strings.FieldsSeq(string(out)) {
		name := strings.TrimPrefix(path, "plantstore/")
		if isTest(name) {
			continue
		}
		if _, ok := mayImport()[name]; !ok {
			t.Errorf("%s is not in the table of ARCHITECTURE.md: add what it may import", name)
			continue
		}
		checked++
		pkg, err := build.Default.Import("../../"+name, ".", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range pkg.Imports {
			if problem := importProblem(name, imported); problem != "" {
				t.Error(problem)
			}
		}
	}
	if n := len(mayImport()); n != checked {
		t.Errorf("the table of ARCHITECTURE.md has %d packages, want %d", n, checked)
	}
}

func isTest(name string) bool {
	return slices.ContainsFunc(testPackages, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}

func importProblem(name, imported string) string {
	if ours, ok := strings.CutPrefix(imported, "plantstore/"); ok {
		if !slices.Contains(mayImport()[name], ours) {
			return name + " must not import " + ours
		}
		return ""
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	for library, users := range libraries {
		isPart := imported == library || strings.HasPrefix(imported, library+"/")
		if isPart && slices.Contains(strings.Fields(users), name) {
			return ""
		}
	}
	return name + " must not import the library " + imported
}

// Packages that use the errors of storage do not depend on its interfaces.
func TestStorageIsUsedForItsErrors(t *testing.T) {
	for name, allowed := range storageNames {
		files, err := filepath.Glob("../../" + name + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", name, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			used, err := selectorsOf(file, "storage")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range used {
				if !allowed(name) {
					t.Errorf("%s uses storage.%s", file, name)
				}
			}
		}
	}
}

// selectorsOf lists the X of every pkg.X in a file.
func selectorsOf(file, pkg string) (names []string, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg {
				names = append(names, s.Sel.Name)
			}
		}
		return true
	})
	return names, nil
}
