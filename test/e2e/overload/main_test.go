// Package overload tests the service under overload and with slow, idle and hostile clients.
package overload

import (
	"os"
	"testing"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
