// Package overload tests the service under overload and with slow, idle and hostile clients.
package overload

import (
	"fmt"
	"os"
	"testing"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) {
	if options := os.Getenv(floodVariable); options != "" {
		if err := runFlood(options); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(testkit.Main(m))
}
