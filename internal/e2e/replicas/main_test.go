package replicas

import (
	"os"
	"testing"

	"plantstore/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
