// Package plantfile reads and writes files of plants: NDJSON, which has a JSON object on each line, and CSV.
//
// CSV has a header line with the columns id, name and, optionally, tag, in any order, separated by commas, semicolons
// or tabs. An empty field is no tag; an empty field in quotes is an empty tag. The console reads the same formats.
package plantfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode"

	"plantstore/internal/plant"
)

const maxRow = 64 << 20 // bytes; no service accepts a larger body

// Row is a plant of a file, or the reason why it can't be imported.
type Row struct {
	Line  int // on which it starts
	Plant plant.Plant
	Err   error
}

// Reader reads the plants of a file, one at a time.
type Reader struct {
	in   *bufio.Reader
	line int // of the next byte, while white space is skipped
	next func() (Row, error)
}

// NewReader returns a reader of a file. It recognizes the format when the first plant is read.
func NewReader(file io.Reader) *Reader {
	r := &Reader{in: bufio.NewReaderSize(file, 64<<10), line: 1}
	r.next = r.first
	return r
}

// Next returns the next plant, or io.EOF at the end. After another error, which concerns row.Line, the rest of the file
// can't be read. An error that concerns one row alone is in the row.
func (r *Reader) Next() (row Row, err error) { return r.next() }

// first recognizes the format by the first character that is not white space, and returns the first plant.
func (r *Reader) first() (Row, error) {
	for {
		c, _, err := r.in.ReadRune()
		if err != nil {
			return Row{Line: r.line}, err
		}
		if c == '\n' {
			r.line++
		}
		if c == '\ufeff' || unicode.IsSpace(c) {
			continue
		}
		r.in.UnreadRune()
		switch c {
		case '{':
			r.next = readJSON(r.in, r.line)
		case '[':
			r.next = func() (Row, error) { return Row{Line: r.line}, errArray }
		default:
			r.next = newCSVReader(r.in, r.line).next
		}
		return r.next()
	}
}

// readJSON reads a plant from each line that is not blank.
func readJSON(in *bufio.Reader, line int) func() (Row, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxRow)
	return func() (Row, error) {
		for ; lines.Scan(); line++ {
			if text := bytes.TrimSpace(lines.Bytes()); len(text) > 0 {
				p, err := plant.Decode(text)
				if e, ok := errors.AsType[*plant.Invalid](err); ok && e.Pointer == "" {
					err = errors.New("the plant " + e.Problem)
				}
				line++
				return Row{line - 1, p, err}, nil
			}
		}
		err := lines.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = errTooLong
		}
		if err == nil {
			err = io.EOF
		}
		return Row{Line: line}, err
	}
}

var (
	errTooLong = fmt.Errorf("the plant is longer than %d bytes; the rest of the file is not imported", maxRow)
	errHeader  = errors.New("this is neither NDJSON nor CSV: " +
		"the first line of a CSV file must name the columns id, name and, optionally, tag")
	errArray = errors.New("this is a JSON array: write each plant on a line of its own, as jq -c '.[]' does")
)
