package transfer_test

import (
	"os"
	"testing"

	"plantstore/internal/store/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
