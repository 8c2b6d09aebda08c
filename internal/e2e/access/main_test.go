// Package access tests credentials, scopes, rates and client addresses.
package access

import (
	"os"
	"testing"

	"plantstore/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
