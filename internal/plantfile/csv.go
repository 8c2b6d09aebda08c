package plantfile

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"plantstore/internal/plant"
)

// csvReader reads the plants of a CSV file. It keeps the text of the current record, because encoding/csv does not tell
// an empty field from one in quotes, and changes line breaks in quotes.
type csvReader struct {
	records       *csv.Reader
	id, name, tag int // columns; tag is -1 if there is none
	err           error

	in     io.Reader
	text   []byte // from the start of the record on
	offset int64  // of text in the file
	line   int    // of the start of text
	before int    // lines before the header, which records does not count
}

// newCSVReader reads the header. The first separator in it separates the fields of all records.
func newCSVReader(in *bufio.Reader, line int) *csvReader {
	header, err := in.ReadBytes('\n')
	r := &csvReader{in: io.MultiReader(bytes.NewReader(header), in), line: line, before: line - 1}
	r.records = csv.NewReader(r)
	if i := bytes.IndexAny(header, ",;\t"); i >= 0 {
		r.records.Comma = rune(header[i])
	}
	if err != nil && err != io.EOF {
		r.err = err
		return r
	}
	names, err := r.records.Read()
	for i, name := range names {
		names[i] = strings.ToLower(strings.TrimSpace(name))
	}
	r.id, r.name, r.tag = slices.Index(names, "id"), slices.Index(names, "name"), slices.Index(names, "tag")
	if err != nil || r.id < 0 || r.name < 0 {
		r.err = errHeader
	}
	return r
}

// Read reads more of the file. It fails if a record is too long, for example because a quote is not closed.
func (r *csvReader) Read(b []byte) (int, error) {
	if len(r.text) > maxRow {
		return 0, errTooLong
	}
	n, err := r.in.Read(b)
	r.text = append(r.text, b[:n]...)
	return n, err
}

func (r *csvReader) next() (Row, error) {
	if r.err != nil {
		return Row{Line: r.line}, r.err
	}
	done := r.text[:r.records.InputOffset()-r.offset]
	r.line += bytes.Count(done, []byte("\n"))
	r.text, r.offset = r.text[len(done):], r.offset+int64(len(done))
	fields, err := r.records.Read()
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		return Row{Line: r.before + wrong.StartLine, Err: wrong.Err}, nil
	}
	if err != nil {
		return Row{Line: r.line}, err
	}
	line, _ := r.records.FieldPos(0)
	p, err := r.plant(fields)
	return Row{r.before + line, p, err}, nil
}

func (r *csvReader) plant(fields []string) (p plant.Plant, err error) {
	if p.ID, err = strconv.ParseInt(strings.TrimSpace(fields[r.id]), 10, 64); err != nil {
		return p, fmt.Errorf("the id must be a 64-bit integer, but is %.40q", fields[r.id])
	}
	p.Name, _ = r.field(fields, r.name)
	if r.tag >= 0 {
		if tag, quoted := r.field(fields, r.tag); quoted || tag != "" {
			p.Tag = &tag
		}
	}
	if !utf8.ValidString(p.Name) || p.Tag != nil && !utf8.ValidString(*p.Tag) {
		return p, errors.New("the line must be UTF-8")
	}
	return p, nil
}

// field returns the text of a field, and whether it is in quotes.
func (r *csvReader) field(fields []string, i int) (text string, quoted bool) {
	line, column := r.records.FieldPos(i)
	rest := r.text
	for range r.before + line - r.line {
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	if rest = rest[column-1:]; len(rest) == 0 || rest[0] != '"' {
		return fields[i], false
	}
	var b strings.Builder
	for rest = rest[1:]; ; rest = rest[1:] {
		part, after, _ := bytes.Cut(rest, []byte(`"`))
		b.Write(part)
		if rest = after; len(rest) == 0 || rest[0] != '"' {
			return b.String(), true
		}
		b.WriteByte('"')
	}
}
