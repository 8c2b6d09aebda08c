// Package telemetry is what an operator sees of the service: logs and health.
package telemetry

import (
	"io"
	"log/slog"
	"os"
)

// NewLogger writes text where a person looks and JSON where a program does. Both quote what they
// write, so a record stays one line whatever a client has sent.
func NewLogger(w io.Writer) *slog.Logger {
	if IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, nil))
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
