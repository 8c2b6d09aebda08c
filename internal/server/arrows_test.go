package server_test

import (
	"go/build"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// arrows is which of our packages each of our packages may import. The domain uses one library, for
// JSON, until that is in the standard library everywhere.
var arrows = map[string]string{
	"api":                            "",
	"cmd/plantstore":                 "client internal/server internal/httpapi internal/plant internal/rate internal/telemetry internal/token internal/store internal/store/sqlite internal/store/postgres",
	"client":                         "",
	"internal/plant":                 "",
	"internal/rate":                  "",
	"internal/framing":               "",
	"internal/machine":               "",
	"internal/share":                 "",
	"internal/token":                 "internal/rate",
	"internal/commit":                "internal/plant internal/store",
	"internal/store":                 "internal/plant internal/token",
	"internal/store/storetest":       "internal/plant internal/rate internal/token internal/store",
	"internal/store/sqlite":          "internal/plant internal/rate internal/token internal/store",
	"internal/store/postgres":        "internal/plant internal/rate internal/token internal/store",
	"internal/store/postgres/pgtest": "",
	"internal/httpapi":               "internal/plant internal/rate internal/share internal/store internal/telemetry internal/token",
	"internal/console":               "",
	"internal/telemetry":             "",
	"internal/server":                "api internal/commit internal/console internal/framing internal/httpapi internal/machine internal/plant internal/store internal/telemetry internal/token",
	"internal/browser":               "",
	"internal/e2e":                   "",
	"internal/e2e/openload":          "",
	"internal/ledger":                "",
	"internal/testkit/load":          "internal/testkit/measure",
	"internal/testkit/measure":       "",
	"internal/testkit/proxy":         "",
}

// libraries is which packages may use what is not the standard library.
var libraries = map[string]string{
	"github.com/go-json-experiment/json": "internal/plant internal/httpapi cmd/plantstore",
	"modernc.org/sqlite":                 "internal/store/sqlite",
	"modernc.org/libc":                   "internal/store/sqlite",
	"golang.org/x/sys":                   "internal/store/sqlite",
	"github.com/jackc/pgx/v5":            "internal/store/postgres internal/store/postgres/pgtest",
}

func TestArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "plantstore/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		name := strings.TrimPrefix(path, "plantstore/")
		allowed, ok := arrows[name]
		if !ok {
			t.Errorf("%s is not in the table: say what it may import", name)
			continue
		}
		pkg, err := build.Default.Import("../../"+name, ".", 0)
		if err != nil {
			if _, empty := err.(*build.NoGoError); empty {
				continue // tests only
			}
			t.Fatal(err)
		}
		for _, imported := range pkg.Imports {
			if problem := arrowProblem(name, allowed, imported); problem != "" {
				t.Error(problem)
			}
		}
	}
}

func arrowProblem(name, allowed, imported string) string {
	if ours, ok := strings.CutPrefix(imported, "plantstore/"); ok {
		if !slices.Contains(strings.Fields(allowed), ours) {
			return name + " imports " + ours + ": the arrows run the other way"
		}
		return ""
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	for library, users := range libraries {
		if (imported == library || strings.HasPrefix(imported, library+"/")) && slices.Contains(strings.Fields(users), name) {
			return ""
		}
	}
	return name + " imports " + imported + ": not a library for this package"
}

// The test must be able to fail.
func TestArrowsAreHeld(t *testing.T) {
	for _, wrong := range [][2]string{
		{"internal/httpapi", "plantstore/internal/commit"}, {"internal/plant", "plantstore/internal/token"},
		{"internal/store/sqlite", "plantstore/internal/store/postgres"}, {"internal/commit", "plantstore/internal/server"},
		{"internal/httpapi", "modernc.org/sqlite"}, {"internal/plant", "github.com/pkg/errors"},
	} {
		if arrowProblem(wrong[0], arrows[wrong[0]], wrong[1]) == "" {
			t.Errorf("%s may import %s", wrong[0], wrong[1])
		}
	}
}
