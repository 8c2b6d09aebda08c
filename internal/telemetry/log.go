// Package telemetry is what an operator sees of the service: logs and health.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
)

// NewLogger writes text where a person looks and JSON where a program does. Both quote what they
// write, so a record stays one line whatever a client has sent.
func NewLogger(w io.Writer) *slog.Logger {
	if IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: escaped}))
}

// escaped writes out the characters that JSON lets stand and a terminal obeys, or does not show: U+009B, U+202E.
func escaped(_ []string, a slog.Attr) slog.Attr {
	unseen := func(r rune) bool { return r >= 0x7f && !strconv.IsPrint(r) }
	if a.Value.Kind() != slog.KindString || !strings.ContainsFunc(a.Value.String(), unseen) {
		return a
	}
	var b strings.Builder
	for _, r := range a.Value.String() {
		if unseen(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return slog.String(a.Key, b.String())
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Name() != "null"
}
