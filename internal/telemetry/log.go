// Package telemetry shows the service to its operator: logs, health, metrics and traces.
package telemetry

import (
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
)

// NewLogger returns a logger that writes text to a terminal and JSON to anything else. Both escape
// attributes, so a record stays one line and cannot control a terminal, whatever a client sent.
func NewLogger(w io.Writer) *slog.Logger {
	if IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: escapeAttr}))
}

// escapeAttr escapes what JSON does not: it writes control characters above ASCII and invisible
// characters, such as U+009B and U+202E, as they are.
func escapeAttr(_ []string, a slog.Attr) slog.Attr {
	notInJSON := func(r rune) bool { return r >= 0x7f && !strconv.IsPrint(r) }
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			text = err.Error()
		}
	}
	if !strings.ContainsFunc(text, notInJSON) {
		return a
	}
	return slog.String(a.Key, escape(text, notInJSON))
}

// Escape returns text with every character that a terminal would interpret or not display replaced by its
// Go escape sequence. The result is for people: it cannot be converted back.
func Escape(text string) string {
	return escape(text, func(r rune) bool { return !strconv.IsPrint(r) })
}

func escape(text string, unsafe func(rune) bool) string {
	var b strings.Builder
	for _, r := range text {
		if unsafe(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
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
