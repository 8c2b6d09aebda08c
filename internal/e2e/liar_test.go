package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	driver "modernc.org/sqlite"

	"plantstore/internal/commit"
	"plantstore/internal/plant"
	"plantstore/internal/server"
	"plantstore/internal/store"
	"plantstore/internal/store/sqlite"
)

// A liar is this test's own binary, started again as the service with one promise broken. The variable
// names which.
const liarVariable = "PLANTSTORE_TEST_LIAR"

// Each liar must be caught by what finds nothing on the product: see TestKill and TestPowerCut.
func TestLiars(t *testing.T) {
	t.Parallel()
	for _, liar := range []struct {
		name string
		new  func(t *testing.T) *course
	}{
		{"early", onFile}, {"last", onFile}, {"normal", onImage},
	} {
		t.Run(liar.name, func(t *testing.T) {
			t.Parallel()
			c := liar.new(t)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			c.command = func() *exec.Cmd {
				cmd := exec.Command(self, c.db, fixedToken)
				cmd.Env = append(os.Environ(), liarVariable+"="+liar.name)
				return cmd
			}
			for range 5 {
				c.run(whileServing)
				if c.total.Lost > 0 {
					break
				}
			}
			t.Logf("%d of %d plants answered 200 are lost", c.total.Lost, c.total.Acks)
			if c.total.Lost == 0 {
				t.Error("the liar was not noticed")
			}
		})
	}
}

func serveAsLiar(args []string) int {
	kind := os.Getenv(liarVariable)
	if kind == "normal" {
		driver.RegisterConnectionHook(func(conn driver.ExecQuerierContext, _ string) error {
			_, err := conn.ExecContext(context.Background(), "PRAGMA synchronous = NORMAL", nil)
			return err
		})
	}
	file, err := sqlite.Open(context.Background(), args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var st store.Store = file
	switch kind {
	case "early":
		st = early{file}
	case "last":
		st = forgetful{file}
	case "normal":
	default:
		fmt.Fprintf(os.Stderr, "there is no liar %q\n", kind)
		return 2
	}
	err = server.Run(context.Background(), server.Config{
		Listen: "127.0.0.1:0", OpsListen: "off", MaxBody: 64 << 10, Commit: commit.Options{},
		Token: args[1], Out: os.Stdout, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}, st)
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// early says 200 before the commit.
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

// forgetful loses the last plant of a batch.
type forgetful struct{ store.Store }

func (l forgetful) CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	if len(plants) < 2 {
		return l.Store.CreateBatch(ctx, plants)
	}
	out, err := l.Store.CreateBatch(ctx, plants[:len(plants)-1])
	return append(out, plant.Created), err
}
