//go:build linux

package durability

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"plantstore/test/testkit"
)

// A service that does not sync its commits loses acknowledged plants when its power is cut, and the ledger detects it:
// otherwise TestPowerCut would show nothing.
func TestLedgerDetectsFalseAcknowledgements(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	c := cutPowerSQLite(t)
	product := c.command
	file := filepath.Join(testkit.Root(), "internal/storage/sqlite/conn.go")
	changed := buildChanged(t, t.TempDir(), file, `"synchronous(FULL)"`, `"synchronous(NORMAL)"`)
	c.command = func() *exec.Cmd {
		cmd := product()
		cmd.Path = changed
		return cmd
	}
	for tries := 0; c.total.Lost == 0 && tries < 5; tries++ {
		c.run(whileServing)
	}
	t.Logf("%d of %d acknowledged plants are lost", c.total.Lost, c.total.Acked)
	if c.total.Lost == 0 {
		t.Error("the ledger found no lost plant")
	}
}

// buildChanged builds the product with one text of one file replaced, and returns its path.
func buildChanged(t *testing.T, folder, file, from, to string) string {
	t.Helper()
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := testkit.ReplaceOnce(t, string(text), from, to)
	copied, overlay := filepath.Join(folder, "changed.go"), filepath.Join(folder, "overlay.json")
	path := filepath.Join(folder, "plantstore")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: copied}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", path, "plantstore/cmd/plantstore")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the changed product: %v\n%s", err, out)
	}
	return path
}
