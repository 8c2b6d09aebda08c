// Package lifecycle tests how the service starts, stops, restarts, logs and is deployed.
package lifecycle

import (
	"os"
	"testing"

	"plantstore/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
