package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/term"
	"golang.org/x/text/width"

	"plantstore/internal/telemetry"
)

// table aligns the columns of what is written to it: lines of cells that are separated by tabs. On a terminal, the
// widest columns of text are cut until a line fits, at most to minText; a longer line wraps. Elsewhere every cell is
// whole; one longer than maxPadding is not aligned.
type table struct {
	bytes.Buffer
	out     io.Writer
	columns int   // of the terminal, or 0
	text    []int // indexes of the columns that may be cut; others, such as ids, are printed whole
}

const maxPadding, minText = 40, 4

// table returns a table that is written to out, a writer to standard output.
func (env environment) table(out io.Writer, text ...int) *table {
	t := &table{out: out, text: text}
	if f, ok := env.stdout.(*os.File); ok && telemetry.IsTerminal(f) {
		if t.columns, _ = strconv.Atoi(env.getenv("COLUMNS")); t.columns < 1 {
			t.columns, _, _ = term.GetSize(int(f.Fd()))
		}
	}
	return t
}

// Flush prints what was written and starts another table.
func (t *table) Flush() error {
	lines := strings.Split(t.String(), "\n")
	lines = lines[:len(lines)-1] // each ends with a newline
	t.Reset()
	var widths []int
	for _, line := range lines {
		for i, cell := range strings.Split(line, "\t") {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cellWidth(cell))
			if t.columns == 0 {
				widths[i] = min(widths[i], maxPadding)
			}
		}
	}
	total := 2 * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	for ; t.columns > 0 && total > t.columns && len(t.text) > 0; total-- {
		widest := slices.MaxFunc(t.text, func(a, b int) int { return widths[a] - widths[b] })
		if widths[widest] <= minText {
			break
		}
		widths[widest]--
	}
	for _, line := range lines {
		text, cells := "", strings.Split(line, "\t")
		for i, cell := range cells {
			if t.columns > 0 {
				cell = cut(cell, widths[i])
			}
			text += cell
			if i < len(cells)-1 {
				text += strings.Repeat(" ", max(0, widths[i]-cellWidth(cell))+2)
			}
		}
		if _, err := fmt.Fprintln(t.out, text); err != nil {
			return err
		}
	}
	return nil
}

// cut returns text if it fits into n columns. Otherwise it shortens it, and the last column is "…".
func cut(text string, n int) string {
	if cellWidth(text) <= n {
		return text
	}
	used := 1
	for i, r := range text {
		if used += runeWidth(r); used > n {
			return text[:i] + "…"
		}
	}
	return text
}

func cellWidth(text string) (columns int) {
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

// runeWidth returns the columns of a character on a terminal.
func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cell returns text for a table, quoted if it would be misread or interpreted by a terminal.
func cell(text string) string {
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
