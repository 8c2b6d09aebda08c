package durability

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// Services that break one promise. Each must be caught by what finds nothing on the product: see
// TestKill and TestPowerCut.
func TestLiars(t *testing.T) {
	t.Parallel()
	t.Run("200 before the commit", func(t *testing.T) {
		t.Parallel()
		c := onFile(t)
		c.command = liar(t, "early", c.db)
		c.wantLosses()
	})
	t.Run("the last of a batch is lost", func(t *testing.T) {
		t.Parallel()
		c := onFile(t)
		c.command = liar(t, "forgetful", c.db)
		c.wantLosses()
	})
	t.Run("synchronous is NORMAL", func(t *testing.T) {
		t.Parallel()
		c := onImage(t)
		product, folder := c.command, t.TempDir()
		changed := buildChanged(t, folder, filepath.Join(testkit.Root(), "internal/store/sqlite/sqlite.go"), `"synchronous(FULL)"`, `"synchronous(NORMAL)"`)
		c.command = func() *exec.Cmd {
			cmd := product()
			cmd.Path = changed
			return cmd
		}
		c.wantLosses()
	})
}

func (c *course) wantLosses() {
	c.t.Helper()
	for tries := 0; c.total.Lost == 0 && tries < 5; tries++ {
		c.run(whileServing)
	}
	c.t.Logf("%d of %d plants answered 200 are lost", c.total.Lost, c.total.Acks)
	if c.total.Lost == 0 {
		c.t.Error("the liar was not noticed")
	}
}

// buildChanged builds the product with one word of one file changed, and returns its path.
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
	if n := strings.Count(string(text), from); n != 1 {
		t.Fatalf("%s has %s %d times, want it once", file, from, n)
	}
	copied, overlay, path := filepath.Join(folder, "changed.go"), filepath.Join(folder, "overlay.json"), filepath.Join(folder, "plantstore")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: copied}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, []byte(strings.Replace(string(text), from, to, 1)), 0o600); err != nil {
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

// liar is this test's own binary, started again as a service. The variable says of which kind.
func liar(t *testing.T, kind, db string) func() *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func() *exec.Cmd {
		cmd := exec.Command(self, db, testkit.FixedToken)
		cmd.Env = append(os.Environ(), liarVariable+"="+kind)
		return cmd
	}
}

const liarVariable = "PLANTSTORE_TEST_LIAR"

func serveAsLiar(args []string) int {
	file, err := sqlite.Open(context.Background(), args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var st store.Store = early{file}
	if os.Getenv(liarVariable) == "forgetful" {
		st = forgetful{file}
	}
	err = server.Run(context.Background(), server.Config{
		Listen: "127.0.0.1:0", OpsListen: "off", Config: httpapi.Config{MaxBody: 64 << 10}, Commit: commit.Options{},
		Token: args[1], Out: os.Stdout, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}, st)
	fmt.Fprintln(os.Stderr, err)
	return 1
}

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

type forgetful struct{ store.Store }

func (l forgetful) CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	if len(plants) < 2 {
		return l.Store.CreateBatch(ctx, plants)
	}
	out, err := l.Store.CreateBatch(ctx, plants[:len(plants)-1])
	if err != nil {
		return nil, err
	}
	return append(out, plant.Created), nil
}
