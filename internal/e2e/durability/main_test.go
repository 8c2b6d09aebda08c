package durability

import (
	"os"
	"testing"

	"plantstore/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(liarVariable) != "" {
		os.Exit(serveAsLiar(os.Args[1:]))
	}
	os.Exit(testkit.Main(m))
}
