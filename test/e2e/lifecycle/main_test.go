// Package lifecycle tests how the service starts, stops, restarts, logs and is deployed.
package lifecycle

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) {
	// The processes that the tests start must not ignore SIGHUP, even if nohup runs the tests.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	os.Exit(testkit.Main(m))
}
