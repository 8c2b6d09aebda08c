package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore/internal/telemetry"
)

// newTable returns a writer that aligns the columns of lines whose cells are separated by tabs. Flush prints them.
func newTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

const maxCell = 60 // characters; JSON has the whole text

// cell returns text for a table: cut if it is long, and quoted if it would be misread or interpreted by a terminal.
func cell(text string) string {
	if runes := []rune(text[:min(len(text), 4*(maxCell+1))]); len(runes) > maxCell {
		text = string(runes[:maxCell-1]) + "…"
	}
	if text == "" || text[0] == '"' || strings.TrimSpace(text) != text || telemetry.Escape(text) != text {
		return strconv.Quote(text)
	}
	return text
}

// printJSON prints a value over several lines, unless options change that.
func (env environment) printJSON(v any, options ...json.Options) error {
	text, err := json.Marshal(v, append([]json.Options{jsontext.WithIndent("  ")}, options...)...)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, "%s\n", escapeJSON(text))
	return err
}

// escapeJSON returns JSON with the same value, in which characters that a terminal would interpret or not display, such
// as U+009B and U+202E, are escaped. JSON has characters above ASCII only in strings.
func escapeJSON(text []byte) []byte {
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
