//go:build linux

// Package durability tests that acknowledged plants survive crashes, power cuts and faults of the disk, and that the
// responses to concurrent clients are linearizable.
package durability

import (
	"os"
	"testing"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
