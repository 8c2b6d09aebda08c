package transfer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"plantstore/internal/plant"
)

const (
	maxText    = 64 << 20 // bytes of a plant in a file; no service accepts a larger body
	maxColumns = 1000
)

// Row is a plant of a file, or the reason why it can't be imported.
type Row struct {
	Line  int64 // on which it starts
	Plant plant.New
	Err   error
}

// Reader reads the plants of a file: a JSON array, NDJSON (a JSON object on each line) or CSV, recognized by the
// content. It keeps one plant in memory.
//
// CSV has a header line with the columns id, name and, optionally, tag, in any order, separated by commas, semicolons
// or tabs. An empty field is no tag; an empty field in quotes is an empty tag. The console reads the same formats.
type Reader struct {
	in    *bufio.Reader
	parse func(*Reader) (Row, error) // reads the next row; after an error, the rest can't be read
	err   error                      // of the last read
	line  int64                      // of the next byte
	text  []byte                     // of the current row, at most maxText
	long  bool                       // it is longer

	separator              byte
	fields                 []field // of the current row
	misquoted              int64   // the line of it on which text follows a closing quote, or 0
	columns, id, name, tag int     // number of columns, and the index of each that matters
}

type field struct {
	from, to int // offsets in the text
	quoted   bool
}

// NewReader returns a Reader of a file.
func NewReader(file io.Reader) *Reader {
	r := &Reader{in: bufio.NewReaderSize(file, 64<<10), line: 1, parse: (*Reader).first}
	if mark, _ := r.in.Peek(3); string(mark) == "\ufeff" {
		r.in.Discard(3)
	}
	return r
}

// Next returns the next plant, or false at the end. If the rest of the file can't be read, the last row says why.
func (r *Reader) Next() (Row, bool) {
	r.text, r.long = r.text[:0], false
	row, err := r.parse(r)
	if r.err != nil && r.err != io.EOF {
		row.Line, err = r.line, r.err
	}
	if err != nil {
		r.parse, r.err = func(*Reader) (Row, error) { return Row{}, io.EOF }, nil
		row.Err = err
	}
	return row, err != io.EOF
}

// first recognizes the format and returns the first plant.
func (r *Reader) first() (Row, error) {
	switch c, ok := r.skipSpace(); {
	case !ok:
		return Row{}, io.EOF
	case c == '[':
		r.next()
		r.parse = (*Reader).element
		if c, _ := r.skipSpace(); c == ']' {
			r.next()
			r.parse = (*Reader).end
		}
	case c == '{':
		r.parse = (*Reader).jsonLine
	default:
		r.parse = (*Reader).csvLine
		if err := r.header(); err != nil {
			return Row{Line: 1}, err
		}
	}
	return r.parse(r)
}

func (r *Reader) next() (c byte, ok bool) {
	if c, r.err = r.in.ReadByte(); c == '\n' && r.err == nil {
		r.line++
	}
	return c, r.err == nil
}

func (r *Reader) peek() (c byte, ok bool) {
	next, err := r.in.Peek(1)
	if r.err = err; err != nil {
		return 0, false
	}
	return next[0], true
}

// skipSpace skips white space and returns the byte after it without taking it.
func (r *Reader) skipSpace() (c byte, ok bool) {
	for c, ok = r.peek(); ok && strings.IndexByte(" \t\r\n", c) >= 0; c, ok = r.peek() {
		r.next()
	}
	return c, ok
}

func (r *Reader) keep(text ...byte) {
	r.long = r.long || len(r.text)+len(text) > maxText
	if !r.long {
		r.text = append(r.text, text...)
	}
}

// take keeps what is in the buffer up to one of these characters: most of a file is read without a step for each byte.
func (r *Reader) take(stops string) {
	text, _ := r.in.Peek(r.in.Buffered())
	if i := bytes.IndexAny(text, stops); i >= 0 {
		text = text[:i]
	}
	r.keep(text...)
	r.line += int64(bytes.Count(text, []byte("\n")))
	r.in.Discard(len(text))
}

var errTooLong = fmt.Errorf("the plant is longer than %d bytes", maxText)

// decode returns the plant whose JSON is the text.
func (r *Reader) decode(line int64) (Row, error) {
	if r.long {
		return Row{Line: line, Err: errTooLong}, nil
	}
	p, err := plant.Decode(bytes.TrimSpace(r.text))
	if e, ok := errors.AsType[*plant.Invalid](err); ok && e.Pointer == "" {
		err = errors.New("the plant " + e.Problem)
	}
	return Row{line, p, err}, nil
}

func (r *Reader) jsonLine() (Row, error) {
	if _, ok := r.skipSpace(); !ok {
		return Row{}, io.EOF
	}
	line := r.line
	for c, ok := r.next(); ok && c != '\n'; c, ok = r.next() {
		r.keep(c)
		r.take("\n")
	}
	return r.decode(line)
}

// element reads an element of an array, up to a comma or bracket outside of strings and inner brackets.
func (r *Reader) element() (Row, error) {
	r.skipSpace()
	line := r.line
	for depth, inString := 0, false; ; {
		c, ok := r.next()
		switch {
		case !ok:
			return Row{Line: line}, errors.New("the file ends before the JSON array does, in the plant of this line")
		case inString && c == '\\':
			r.keep(c)
			c, _ = r.next()
		case c == '"':
			inString = !inString
		case inString:
		case depth == 0 && (c == ',' || c == ']'):
			if c == ']' {
				r.parse = (*Reader).end
			}
			return r.decode(line)
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth < 0 {
				return Row{Line: r.line}, errors.New("there is one bracket too many; the rest of the file is not imported")
			}
		}
		r.keep(c)
		r.take(`"\[]{},`)
	}
}

func (r *Reader) end() (Row, error) {
	if _, ok := r.skipSpace(); ok {
		return Row{Line: r.line}, errors.New("the file continues after the JSON array; the rest is not imported")
	}
	return Row{}, io.EOF
}

// header reads the header line of a CSV file. The first separator in it separates the fields of all lines.
func (r *Reader) header() error {
	r.columns = maxColumns
	err := r.readFields()
	var names []string
	for i := range r.fields {
		names = append(names, strings.ToLower(strings.TrimSpace(r.field(i))))
	}
	r.id, r.name, r.tag = slices.Index(names, "id"), slices.Index(names, "name"), slices.Index(names, "tag")
	if r.columns = len(names); err != nil || r.misquoted > 0 || r.id < 0 || r.name < 0 {
		return errors.New("this is not a JSON array, NDJSON or CSV in UTF-8: " +
			"the first line of a CSV file must name the columns id, name and, optionally, tag")
	}
	return nil
}

func (r *Reader) csvLine() (row Row, err error) {
	for {
		if _, ok := r.peek(); !ok {
			return Row{}, io.EOF
		}
		row.Line = r.line
		if err := r.readFields(); err != nil {
			return row, err
		}
		if len(r.fields) > 1 || r.fields[0].quoted || r.field(0) != "" { // not a blank line
			row.Plant, row.Err = r.plant()
			return row, nil
		}
	}
}

// readFields reads a row of a CSV file. It keeps at most one field more than there are columns. A row with text after a
// closing quote ends with that line: which quote is wrong is unknown.
func (r *Reader) readFields() error {
	r.misquoted = 0
	for r.fields = r.fields[:0]; ; {
		f := field{from: len(r.text)}
		c, ok := r.next()
		for f.quoted = ok && c == '"'; f.quoted; r.keep(c) {
			r.take(`"`)
			if c, ok = r.next(); !ok {
				return errors.New("a quote is opened and not closed; the lines from here on are not imported")
			}
			if c == '"' {
				if c, ok = r.next(); c != '"' {
					break
				}
			}
		}
		for ; ok && c != '\n' && c != r.separator; c, ok = r.next() {
			if r.separator == 0 && strings.IndexByte(",;\t", c) >= 0 {
				r.separator = c
				break
			}
			if next, _ := r.peek(); c != '\r' || next != '\n' {
				if f.quoted {
					r.misquoted = r.line
				}
				r.keep(c)
				r.take(",;\t\r\n")
			}
		}
		if f.to = len(r.text); len(r.fields) <= r.columns {
			r.fields = append(r.fields, f)
		}
		for ; r.misquoted > 0 && ok && c != '\n'; c, ok = r.next() {
		}
		if !ok || c == '\n' {
			return nil
		}
	}
}

func (r *Reader) field(i int) string { return string(r.text[r.fields[i].from:r.fields[i].to]) }

// plant returns the plant of a CSV row. An id may be written as people and spreadsheets do: with white space, a plus
// sign, leading zeros or a minus sign that is not ASCII.
func (r *Reader) plant() (p plant.New, err error) {
	switch {
	case r.long:
		return p, errTooLong
	case r.misquoted > 0:
		return p, fmt.Errorf("a quote is opened, and text follows the closing quote on line %d; "+
			"nothing up to the end of that line is imported", r.misquoted)
	case len(r.fields) != r.columns:
		return p, fmt.Errorf("the line must have %d fields, like the first line", r.columns)
	case !utf8.Valid(r.text):
		return p, errors.New("the line must be UTF-8")
	}
	text := r.field(r.id)
	number := strings.NewReplacer("\u2212", "-", "\u2013", "-").Replace(strings.TrimSpace(text))
	if p.ID, err = strconv.ParseInt(number, 10, 64); err != nil {
		return p, fmt.Errorf("the id must be a 64-bit integer, but is %.40q", text)
	}
	p.Name = r.field(r.name)
	if r.tag >= 0 && (r.fields[r.tag].quoted || r.field(r.tag) != "") {
		tag := r.field(r.tag)
		p.Tag = &tag
	}
	return p, nil
}
