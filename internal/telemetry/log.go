// Package telemetry shows the service to its operator: logs, health, metrics and traces.
package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// NewLogger returns a logger that writes text to a terminal and JSON to anything else. Both escape what they write, so
// that a record stays one line and cannot control a terminal, whatever a client sent.
func NewLogger(w io.Writer) *slog.Logger {
	if IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(jsonWriter{w}, nil))
}

// jsonWriter writes the records of a handler, of which each is one call.
type jsonWriter struct{ io.Writer }

func (w jsonWriter) Write(record []byte) (int, error) {
	if _, err := w.Writer.Write(EscapeJSON(record)); err != nil {
		return 0, err
	}
	return len(record), nil
}

// EscapeJSON returns JSON with the same value, in which characters that a terminal would interpret or not display, such
// as U+009B and U+202E, are escaped. Characters above ASCII occur only in strings. Control characters below U+0020 are
// escaped in every JSON text.
func EscapeJSON(text []byte) []byte {
	hidden := func(r rune) bool { return r >= 0x7f && !strconv.IsPrint(r) }
	if !bytes.ContainsFunc(text, hidden) {
		return text
	}
	var b []byte
	for _, r := range string(text) {
		if !hidden(r) {
			b = utf8.AppendRune(b, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
	}
	return b
}

// Escape returns text with every character that a terminal would interpret or not display replaced by its
// Go escape sequence. The result is for people: it cannot be converted back.
func Escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
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
