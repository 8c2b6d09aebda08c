package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"plantstore/internal/commit"
	"plantstore/internal/plant"
	"plantstore/internal/server"
	"plantstore/internal/store"
	"plantstore/internal/store/sqlite"
)

// A liar is this test's own binary, started again as a server that says 200 before the commit. What it
// loses when it is killed is what the ledger must notice.
const liarVariable = "PLANTSTORE_TEST_LIAR"

type liar struct{ store.Store }

func (l liar) CreateBatch(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
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

func serveAsLiar(args []string) int {
	st, err := sqlite.Open(context.Background(), args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = server.Run(context.Background(), server.Config{
		Listen: "127.0.0.1:0", OpsListen: "off", MaxBody: 64 << 10, Commit: commit.Options{},
		Token: args[1], Out: os.Stdout, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}, liar{st})
	fmt.Fprintln(os.Stderr, err)
	return 1
}
