// Package client tests the Go client and the client commands against the real service.
package client

import (
	"os"
	"testing"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
