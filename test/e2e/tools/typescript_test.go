package tools

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"plantstore/test/testkit"
)

// A TypeScript client that is generated from the description, and repeats what failed, stores exactly one plant if it
// does not get the response to its create. Without repeating, it fails, although the plant is stored.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--sandbox")
	description, dir := describe(t, s, "openapi.json"), t.TempDir()
	run(t, "openapi-typescript", description, "-o", filepath.Join(dir, "schema.d.ts"))
	packages, _ := testkit.NPM()
	source, err := os.ReadFile("testdata/client.ts")
	client := filepath.Join(dir, "client")
	if err := errors.Join(err, os.WriteFile(client+".ts", source, 0o644),
		os.Symlink(packages, filepath.Join(dir, "node_modules")),
		os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o644)); err != nil {
		t.Fatal(err)
	}
	run(t, "tsc", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom", client+".ts")
	for _, fault := range []string{`{"code":503,"when":"after"}`, `{"drop":true,"when":"after"}`} {
		cmd := exec.Command("node", client+".js", s.URL, fault)
		out, err := cmd.CombinedOutput()
		var got struct{ Retried, Once, Stored string }
		if err != nil || json.Unmarshal(out, &got) != nil {
			t.Fatalf("%s: %v %s", fault, err, out)
		}
		const want = `[{"id":1,"name":"Fern"},{"id":2,"name":"Fern"}]`
		if got.Retried != "Fern" || got.Once != "failed" || got.Stored != want {
			t.Errorf("%s: %+v, want a plant after a repetition, a failure without, and both stored once", fault, got)
		}
	}
}
