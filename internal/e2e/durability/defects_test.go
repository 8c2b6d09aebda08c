//go:build linux

package durability

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"plantstore/internal/commit"
	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
	"plantstore/internal/server"
	"plantstore/internal/store"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/testkit"
)

// Services that break one promise on purpose. The checks that TestKill and TestPowerCut pass must fail for each.
func TestLedgerDetectsFalseAcknowledgements(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	t.Run("200 before the commit", func(t *testing.T) {
		t.Parallel()
		c := killSQLite(t)
		c.command = defective(t, "early", c.db)
		c.wantLosses()
	})
	t.Run("the last plant of a batch is dropped", func(t *testing.T) {
		t.Parallel()
		c := killSQLite(t)
		c.command = defective(t, "lossy", c.db)
		c.wantLosses()
	})
	t.Run("synchronous is NORMAL", func(t *testing.T) {
		t.Parallel()
		c := cutPowerSQLite(t)
		product, folder := c.command, t.TempDir()
		file := filepath.Join(testkit.Root(), "internal/store/sqlite/sqlite.go")
		changed := buildChanged(t, folder, file, `"synchronous(FULL)"`, `"synchronous(NORMAL)"`)
		c.command = func() *exec.Cmd {
			cmd := product()
			cmd.Path = changed
			return cmd
		}
		c.wantLosses()
	})
}

// wantLosses cuts the service off until the ledger reports a lost plant, at most five times.
func (c *trial) wantLosses() {
	c.t.Helper()
	for tries := 0; c.total.Lost == 0 && tries < 5; tries++ {
		c.run(whileServing)
	}
	c.t.Logf("%d of %d acknowledged plants are lost", c.total.Lost, c.total.Acked)
	if c.total.Lost == 0 {
		c.t.Error("the ledger found no lost plant")
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

// defective is a command that runs this test binary as a service with a defect.
func defective(t *testing.T, kind, db string) func() *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func() *exec.Cmd {
		cmd := exec.Command(self, db, testkit.FixedToken)
		cmd.Env = append(os.Environ(), defectVariable+"="+kind)
		return cmd
	}
}

// defectVariable names the environment variable with the defect.
const defectVariable = "PLANTSTORE_TEST_DEFECT"

// serveDefective is TestMain of a defective service. Its arguments are a database and a token.
func serveDefective(args []string) int {
	file, err := sqlite.Open(context.Background(), args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var st store.Store = early{file}
	if os.Getenv(defectVariable) == "lossy" {
		st = lossy{file}
	}
	err = server.Run(context.Background(), server.Config{
		Listen: "127.0.0.1:0", OpsListen: "off", Config: httpapi.Config{MaxBody: 64 << 10}, Commit: commit.Options{},
		Token: args[1], Out: os.Stdout, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}, st)
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// early acknowledges a batch before it is committed.
type early struct{ store.Store }

func (l early) CreateBatch(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	go func() {
		time.Sleep(20 * time.Millisecond)
		l.Store.CreateBatch(context.Background(), plants)
	}()
	out := make([]plant.Outcome, len(plants))
	for i := range out {
		out[i] = plant.Created
	}
	return out, nil
}

// lossy drops the last plant of a batch.
type lossy struct{ store.Store }

func (l lossy) CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	if len(plants) < 2 {
		return l.Store.CreateBatch(ctx, plants)
	}
	out, err := l.Store.CreateBatch(ctx, plants[:len(plants)-1])
	if err != nil {
		return nil, err
	}
	return append(out, plant.Created), nil
}
