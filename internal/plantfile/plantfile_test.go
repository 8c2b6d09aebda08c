package plantfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"plantstore/internal/plant"
)

// rows reads a file, each row as its line and the plant or the reason why it can't be imported.
func rows(file io.Reader) (all []string) {
	for r := NewReader(file); ; {
		row, err := r.Next()
		switch {
		case err == io.EOF:
			return all
		case err != nil:
			return append(all, fmt.Sprintf("%d: %v, end", row.Line, err))
		case row.Err != nil:
			all = append(all, fmt.Sprintf("%d: %v", row.Line, row.Err))
		default:
			all = append(all, fmt.Sprintf("%d: %s", row.Line, row.Plant.AppendJSON(nil)))
		}
	}
}

func TestReader(t *testing.T) {
	header := fmt.Sprintf("1: %v, end", errHeader)
	for _, test := range []struct {
		file string
		want []string
	}{
		{"", nil},
		{" \r\n\n\ufeff", nil},
		{"id,name\n", nil},
		{"[]", []string{fmt.Sprintf("1: %v, end", errArray)}},
		{"\ufeff{\"id\":1,\"name\":\"a\"}\r\n\n \n" +
			"{\"name\":\"b\",\"x\":[],\"id\":2e0,\"tag\":\"\"}\r\n7\n{\"id\":3\n{\"id\":4}", []string{
			`1: {"id":1,"name":"a"}`, `4: {"id":2,"name":"b","tag":""}`,
			"5: the plant must be a JSON object, but is the number 7",
			"6: the plant is not complete JSON: the input ends at byte 7", "7: name is required and must be a string",
		}},
		{"{\"id\":1,\"name\":\"\xff\"}\n{\"id\":1,\"name\":\"a\"}{}\n\xff\n", []string{
			"1: the plant must be UTF-8, but is not at byte 16",
			"2: the plant must end after the JSON object, but has {} at byte 19",
			"3: the plant must be UTF-8, but is not at byte 0",
		}},
		{"\ufeffTag; ID ;name;x\r\n\"a;\"\"b\"\"\r\n\nc\";-9223372036854775808;least;\r\n" +
			"\"\";+2;;\"\n\"\n;-007;\"5\"\" pot\"; \n\n;9;\n", []string{
			`2: {"id":-9223372036854775808,"name":"least","tag":"a;\"b\"\r\n\nc"}`, `5: {"id":2,"name":"","tag":""}`,
			`7: {"id":-7,"name":"5\" pot"}`, "9: wrong number of fields",
		}},
		{"id,name,tag\n1,\"Fern,shade\n2,Ivy,sun\n3,\"Rose\",sun\n4,\"a\"b,\"\n5,\"\"\"Elm\"\"\",\"x\"", []string{
			`2: extraneous or missing " in quoted-field`, `5: extraneous or missing " in quoted-field`,
			`6: {"id":5,"name":"\"Elm\"","tag":"x"}`,
		}},
		{"id\tname\ttag\n 1 \t a\tb\n9223372036854775808\tx\t\n\tx\t\n2\t\xff\t\n3\tx\n5\t\"open\n6\tx\t\n", []string{
			`2: {"id":1,"name":" a","tag":"b"}`, `3: the id must be a 64-bit integer, but is "9223372036854775808"`,
			`4: the id must be a 64-bit integer, but is ""`, "5: the line must be UTF-8", "6: wrong number of fields",
			`7: extraneous or missing " in quoted-field`,
		}},
		{"name,id\na,1", []string{`2: {"id":1,"name":"a"}`}},
		{"\n\nid,name,tag\r\n\r\n1,a,\r\n2,b,\"\"\r\n",
			[]string{`5: {"id":1,"name":"a"}`, `6: {"id":2,"name":"b","tag":""}`}},
		{"id\n1\n", []string{header}},
		{"\"id,name\n1,x\n", []string{header}},
		{"\xff\xfei\x00d\x00,\x00n\x00", []string{header}},
	} {
		for _, read := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
			if got := rows(read(strings.NewReader(test.file))); !slices.Equal(got, test.want) {
				t.Errorf("%q is read as\n%s\nwant\n%s", test.file, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		}
	}
	for start, want := range map[string]string{
		"{\"id\":1,\"name\":\"a\"}\n{\"id\":2": `[1: {"id":1,"name":"a"} ` +
			`2: the plant is not complete JSON: the input ends at byte 7 3: disk error, end]`,
		"id,name\n1,a\n2": `[2: {"id":1,"name":"a"} 3: disk error, end]`,
	} {
		broken := io.MultiReader(strings.NewReader(start), iotest.ErrReader(errors.New("disk error")))
		if got := fmt.Sprint(rows(broken)); got != want {
			t.Errorf("a file that can't be read is read as %s, want %s", got, want)
		}
	}
}

// A plant that is too long ends the file, also if a quote is not closed.
func TestTooLong(t *testing.T) {
	for _, start := range []string{"{\"id\":1,\"name\":\"a\"}\n{\"x\":\"", "id,name\n1,a\n2,\""} {
		got := rows(io.MultiReader(strings.NewReader(start), strings.NewReader(strings.Repeat("x", maxRow+100_000))))
		if len(got) != 2 || !strings.HasSuffix(got[1], errTooLong.Error()+", end") {
			t.Errorf("%q is read as %q", start, got)
		}
	}
}

// Every plant is the same after it was written and read.
func TestFormats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 && (r < 0xD800 || r > 0xDFFF) })),
			rapid.StringOf(rapid.SampledFrom([]rune("\",;\t\r\n\\ {}[]\ufeff\u2028\u0085a"))))
		var want []string
		f := rapid.SampledFrom(Formats()).Draw(t, "format")
		file := []byte(f.Header)
		for range rapid.IntRange(0, 5).Draw(t, "plants") {
			p := plant.Plant{ID: rapid.Int64().Draw(t, "id"), Content: plant.Content{Name: text.Draw(t, "name")}}
			if rapid.Bool().Draw(t, "tagged") {
				tag := text.Draw(t, "tag")
				p.Tag = &tag
			}
			file = f.Append(file, p)
			want = append(want, string(p.AppendJSON(nil)))
		}
		var got []string
		for _, row := range rows(strings.NewReader(string(file))) {
			_, row, _ = strings.Cut(row, ": ")
			got = append(got, row)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q is read as %q, want %q", file, got, want)
		}
	})
}

// file has n rows with the ids 0, 1 and 2 in turns; the name is the number of the row.
func file(n int) io.Reader {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":%d,\"name\":\"%d\"}\n", i%3, i)
	}
	return strings.NewReader(b.String())
}

// Rows with the same id are done in the order of the file, and different ones at the same time.
func TestEach(t *testing.T) {
	var done [3][]string // by id, and only one call at a time has an id
	var inFlight, most atomic.Int64
	err := Each(t.Context(), NewReader(file(3000)), 8, func(_ context.Context, row Row) error {
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if row.Line <= 3 { // until there are three
			for most.Load() < 3 {
				runtime.Gosched()
			}
		}
		done[row.Plant.ID] = append(done[row.Plant.ID], row.Plant.Name)
		return row.Err
	})
	if err != nil || most.Load() != 3 {
		t.Errorf("Each() = %v with %d at the same time, want 3", err, most.Load())
	}
	for id, names := range done {
		for i, name := range names {
			if want := fmt.Sprint(3*i + id); name != want || len(names) != 1000 {
				t.Fatalf("the row %d of id %d is %s, want %s of 1000", i, id, name, want)
			}
		}
	}
}

// The first error ends the calls, and so does the end of the context while the file can't be read.
func TestEachEnds(t *testing.T) {
	failed := errors.New("failed")
	var calls atomic.Int64
	err := Each(t.Context(), NewReader(file(3000)), 3, func(_ context.Context, row Row) error {
		if calls.Add(1) == 100 {
			return failed
		}
		return nil
	})
	if !errors.Is(err, failed) || calls.Load() > 110 {
		t.Errorf("Each() = %v after %d calls", err, calls.Load())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	blocked, w := io.Pipe()
	defer w.Close()
	go w.Write([]byte("{\"id\":1,\"name\":\"a\"}\n"))
	err = Each(ctx, NewReader(blocked), 3, func(context.Context, Row) error { cancel(failed); return nil })
	if !errors.Is(err, failed) {
		t.Errorf("Each() = %v, want that it was canceled", err)
	}
}
