package telemetry_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/internal/telemetry"
)

func TestLoggerJSON(t *testing.T) {
	for _, test := range []struct {
		value any
		want  string
	}{
		{"plain é🌵", `"value":"plain é🌵"`},
		{"two\nlines\x1b[31m", `"value":"two\nlines\u001b[31m"`}, // JSON's own escapes
		{"csi \u009b31m", `"value":"csi \u009b31m"`},
		{"bidi \u202e", `"value":"bidi \u202e"`},
		{"delete \x7f", `"value":"delete \u007f"`},
		{"both \x1b\u009b", `"value":"both \u001b\u009b"`},
		{"tag \U000e0001", `"value":"tag \udb40\udc01"`},
		{42, `"value":42`},
		{errors.New("an error"), `"value":"an error"`},
		{errors.New("bidi \u202e"), `"value":"bidi \u202e"`},
	} {
		var b bytes.Buffer
		telemetry.NewLogger(&b).Info("message", "value", test.value)
		if got := b.String(); !strings.HasPrefix(got, "{") || !strings.HasSuffix(got, test.want+"}\n") {
			t.Errorf("record of %q: %q, want %s at its end", test.value, got, test.want)
		}
	}
}

// A logger writes text to a terminal, and only there.
func TestLoggerTerminal(t *testing.T) {
	open := func(name string) *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for _, test := range []struct {
		what string
		w    io.Writer
		want bool
	}{
		{"a terminal", open("/dev/ptmx"), true},
		{"the null device", open(os.DevNull), false},
		{"a file", open(filepath.Join(t.TempDir(), "log")), false},
		{"no file", io.Discard, false},
	} {
		if got := telemetry.IsTerminal(test.w); got != test.want {
			t.Errorf("IsTerminal(%s) = %v, want %v", test.what, got, test.want)
		}
	}
}

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		`plain "é🌵" \ '`:         `plain "é🌵" \ '`,
		"a\nb\tc\x1b[31m\x00":    `a\nb\tc\x1b[31m\x00`,
		"\u009b\u202e\u200b\x7f": `\u009b\u202e\u200b\x7f`,
		"\u00a0":                 `\u00a0`,
		"\U000e0001":             `\U000e0001`,
	} {
		if got := telemetry.Escape(text); got != want {
			t.Errorf("Escape(%q) = %s, want %s", text, got, want)
		}
	}
}
