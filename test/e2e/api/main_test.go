// Package api tests every route of the API on both engines.
package api

import (
	"os"
	"testing"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
