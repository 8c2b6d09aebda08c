// Package metrics tests what a monitoring system sees of the service: metrics, alert rules, the dashboard, profiles.
package metrics

import (
	"os"
	"testing"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
