package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

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

// printTable prints a value as JSON, or a table with a row for each of all, unless there is an error. A header may be
// empty.
func printTable[T any](env environment, asJSON bool, value any, err error, header string, row func(T) string,
	all ...T) error {
	if err != nil {
		return err
	}
	if asJSON {
		return env.printJSON(value)
	}
	w := newTable(env.stdout)
	if header != "" {
		fmt.Fprintln(w, header)
	}
	for _, v := range all {
		fmt.Fprintln(w, row(v))
	}
	return w.Flush()
}

// printJSON prints a value over several lines, unless options change that.
func (env environment) printJSON(v any, options ...json.Options) error {
	options = append([]json.Options{jsontext.WithIndent("  "), json.Deterministic(true)}, options...)
	text, err := json.Marshal(v, options...)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, "%s\n", telemetry.EscapeJSON(text))
	return err
}
