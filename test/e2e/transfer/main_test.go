// Package transfer tests plantstore copy: moves between engines with the clients of a real service, kills and refusals.
package transfer

import (
	"os"
	"testing"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
