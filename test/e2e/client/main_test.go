// Package client tests the Go client and the client commands against the real service.
package client

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
