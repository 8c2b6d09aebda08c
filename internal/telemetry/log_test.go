package telemetry_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"plantstore/internal/telemetry"
)

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	telemetry.NewLogger(&b).Info("hello", "name", "a\nb\x1b[31m\u009b31m\u202e\x7f é🌵")
	if got := b.String(); got[0] != '{' || bytes.Count(b.Bytes(), []byte("\n")) != 1 || bytes.ContainsAny(b.Bytes(), "\x1b\u009b\u202e\x7f") || !strings.Contains(got, `\u009b31m\\u202e\\u007f é🌵`) {
		t.Errorf("a record for a program: %q", got)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for f, want := range map[*os.File]bool{terminal: true, null: false} {
		if got := telemetry.IsTerminal(f); got != want {
			t.Errorf("IsTerminal(%s) = %v", f.Name(), got)
		}
	}
}
