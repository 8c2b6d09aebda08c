//go:build linux

// Package cluster tests the service on a Citus cluster whose nodes are killed, hang, and are added under load.
package cluster

import (
	"os"
	"testing"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
