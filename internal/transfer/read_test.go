package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"plantstore/internal/plant"
	"plantstore/internal/transfer"
)

// rows reads a file, each row as its line and the plant or the reason why it can't be imported.
func rows(file io.Reader) (all []string) {
	r := transfer.NewReader(file)
	for row, ok := r.Next(); ok; row, ok = r.Next() {
		if row.Err != nil {
			all = append(all, fmt.Sprintf("%d: %v", row.Line, row.Err))
		} else {
			all = append(all, fmt.Sprintf("%d: %s", row.Line, row.Plant.AppendJSON(nil)))
		}
	}
	return all
}

func TestReader(t *testing.T) {
	const int64s = "must be an integer from -9223372036854775808 to 9223372036854775807, but is "
	const header = "this is not a JSON array, NDJSON or CSV in UTF-8: " +
		"the first line of a CSV file must name the columns id, name and, optionally, tag"
	for _, test := range []struct {
		file string
		want []string
	}{
		{"", nil},
		{" \r\n\n", nil},
		{"\ufeff", nil},
		{"[]", nil},
		{"\ufeff\n[\n]\n", nil},
		{"id,name\n", nil},
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
		{"[{\"id\":1,\"name\":\"a,]}\\\"\\\\\"} , {\"id\":\"5\",\"name\":\"x\"},\n\n" +
			"{\"id\":2,\"name\":\"\",\"x\":[{},[1,2]]},7,,{bad}\n]\n",
			[]string{
				`1: {"id":1,"name":"a,]}\"\\"}`, `1: id ` + int64s + `the string "5"`, `3: {"id":2,"name":""}`,
				"3: the plant must be a JSON object, but is the number 7", "3: the plant is empty; send a JSON object",
				"3: the plant is not valid JSON: unexpected bad} at byte 1",
			}},
		{"[{\"id\":1,\"name\":\"a\"},\n{\"id\":2,\"na", []string{`1: {"id":1,"name":"a"}`,
			"2: the file ends before the JSON array does, in the plant of this line"}},
		{"[{\"id\":1,\"name\":\"a\"},\n}", []string{`1: {"id":1,"name":"a"}`,
			"2: there is one bracket too many; the rest of the file is not imported"}},
		{"[{\"id\":1,\"name\":\"a\"}\n]\n[", []string{`1: {"id":1,"name":"a"}`,
			"3: the file continues after the JSON array; the rest is not imported"}},
		{"\ufeffTag; ID ;name;x\r\n\"a;\"\"b\"\"\r\n\nc\";-9223372036854775808;least;\r\n" +
			"\"\";+2;;\"\n\"\n;\u2212007;5\" pot; \n\n;9;\r\r\n",
			[]string{
				`2: {"id":-9223372036854775808,"name":"least","tag":"a;\"b\"\r\n\nc"}`, `5: {"id":2,"name":"","tag":""}`,
				`7: {"id":-7,"name":"5\" pot"}`, "9: the line must have 4 fields, like the first line",
			}},
		{"id,name,tag\n1,\"Fern,shade\n2,Ivy,sun\n3,\"Rose\",sun\n" +
			"4,\"a\"b,\"\n5,\"Oak\"\r\n6,\"\"\"Elm\"\"\",\"x\"", []string{
			"2: a quote is opened, and text follows the closing quote on line 4; " +
				"nothing up to the end of that line is imported",
			"5: a quote is opened, and text follows the closing quote on line 5; " +
				"nothing up to the end of that line is imported",
			"6: the line must have 3 fields, like the first line", `7: {"id":6,"name":"\"Elm\"","tag":"x"}`,
		}},
		{"\"id\"x,name\n1,a\n", []string{"1: " + header}},
		{"id\tname\ttag\n 1 \t a\tb\"c\n9223372036854775808\tx\t\n" +
			"\tx\t\n1.5\tx\t\n2\t\xff\t\n3\tx\n4\tx\t\t\n5\t\"open\n6\tx\t\n", []string{
			`2: {"id":1,"name":" a","tag":"b\"c"}`, `3: the id must be a 64-bit integer, but is "9223372036854775808"`,
			`4: the id must be a 64-bit integer, but is ""`, `5: the id must be a 64-bit integer, but is "1.5"`,
			"6: the line must be UTF-8", "7: the line must have 3 fields, like the first line",
			"8: the line must have 3 fields, like the first line",
			"9: a quote is opened and not closed; the lines from here on are not imported",
		}},
		{"name,id\na,1", []string{`2: {"id":1,"name":"a"}`}},
		{"id,name,tag\r\n1,a,\r\n2,b,c\r\n", []string{`2: {"id":1,"name":"a"}`, `3: {"id":2,"name":"b","tag":"c"}`}},
		{"id\n1\n", []string{"1: " + header}},
		{"name,tag\n1\n", []string{"1: " + header}},
		{"\"id,name\n1,x\n", []string{"1: " + header}},
		{"\x1f\x8b\x08\x00,,\n\xff\xfe", []string{"1: " + header}},
		{"\xff\xfei\x00d\x00,\x00n\x00", []string{"1: " + header}},
		{"id,name" + strings.Repeat(",", 2000) + "\n", nil},
	} {
		for _, read := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
			if got := rows(read(strings.NewReader(test.file))); !slices.Equal(got, test.want) {
				t.Errorf("%q is read as\n%s\nwant\n%s", test.file, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		}
	}
	broken := io.MultiReader(strings.NewReader("{\"id\":1,\"name\":\"a\"}\n{\"id\":2"),
		iotest.ErrReader(errors.New("disk error")))
	if got := rows(broken); !slices.Equal(got, []string{`1: {"id":1,"name":"a"}`, "2: disk error"}) {
		t.Errorf("a file that can't be read is read as %q", got)
	}
}

// Every plant is the same after it was written and read.
func TestFormats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 && (r < 0xD800 || r > 0xDFFF) })),
			rapid.StringOf(rapid.SampledFrom([]rune("\",;\t\r\n\\ {}[]\ufeff\u2028\u0085a"))))
		var want []string
		f := rapid.SampledFrom(transfer.Formats()).Draw(t, "format")
		file := []byte(f.Empty)
		for i := range rapid.IntRange(0, 5).Draw(t, "plants") {
			p := plant.New{ID: rapid.Int64().Draw(t, "id"), Plant: plant.Plant{Name: text.Draw(t, "name")}}
			if rapid.Bool().Draw(t, "tagged") {
				tag := text.Draw(t, "tag")
				p.Tag = &tag
			}
			if i == 0 {
				file = []byte(f.Before)
			} else {
				file = append(file, f.Between...)
			}
			file = f.Append(file, p)
			want = append(want, string(p.AppendJSON(nil)))
		}
		if len(want) > 0 {
			file = append(file, f.After...)
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

// A plant that is too long is an error of its line, and memory does not grow with the file.
func TestLongFiles(t *testing.T) {
	for _, test := range []struct{ before, long, after string }{
		{"{\"id\":1,\"name\":\"a\"}\n", `{"x":"`, "\"}\n{\"id\":2,\"name\":\"b\"}"},
		{"[{\"id\":1,\"name\":\"a\"},\n", `{"x":"`, "\"},\n{\"id\":2,\"name\":\"b\"}]"},
		{"id,name\n1,a\n", `3,"`, "\"\n2,b\n"},
	} {
		file := io.MultiReader(strings.NewReader(test.before+test.long), &repeated{"x\u00e9y", 65 << 20},
			strings.NewReader(test.after))
		got := rows(file)
		for i, row := range got {
			_, got[i], _ = strings.Cut(row, ": ")
		}
		want := []string{`{"id":1,"name":"a"}`, "the plant is longer than 67108864 bytes", `{"id":2,"name":"b"}`}
		if !slices.Equal(got, want) {
			t.Errorf("%q is read as %q, want %q", test.before+test.long, got, want)
		}
	}
	file := io.MultiReader(strings.NewReader("["), &repeated{"{\"id\":1,\"name\":\"a\"},\n", 16 << 20},
		strings.NewReader("{}]"))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, n := transfer.NewReader(file), 0
	for _, ok := r.Next(); ok; _, ok = r.Next() {
		n++
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); n < 700_000 || grown > 1<<20 {
		t.Errorf("%d plants, and %d bytes in memory", n, grown)
	}
	runtime.KeepAlive(r)
}

// repeated is a text that is repeated up to about a length.
type repeated struct {
	text string
	left int
}

func (r *repeated) Read(b []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	n := 0
	for len(b)-n >= len(r.text) && r.left > 0 {
		n += copy(b[n:], r.text)
		r.left -= len(r.text)
	}
	return n, nil
}

// Each calls for every row, and after an error it returns the line before which everything was done.
func TestEach(t *testing.T) {
	var file strings.Builder
	for id := range 1000 {
		fmt.Fprintf(&file, "{\"id\":%d,\"name\":\"\"}\n", id)
	}
	var done [1000]atomic.Bool
	failed := errors.New("failed")
	for _, stop := range []int64{0, 1, 500, 999, math.MaxInt64} {
		for i := range done {
			done[i].Store(false)
		}
		line, err := transfer.Each(t.Context(), transfer.NewReader(strings.NewReader(file.String())), 16,
			func(_ context.Context, row transfer.Row) error {
				if row.Plant.ID == stop {
					return failed
				}
				runtime.Gosched()
				done[row.Plant.ID].Store(true)
				return nil
			})
		want := stop + 1
		if stop > 1000 {
			failed, want = nil, 1001
		}
		if err != failed || line > want {
			t.Errorf("stopped at %d: line %d, %v", stop, line, err)
		}
		for i := range line - 1 {
			if !done[i].Load() {
				t.Errorf("stopped at %d: row %d, which is before line %d, was not done", stop, i, line)
			}
		}
	}
	// Rows with the same id are done in their order.
	var last atomic.Int64
	same := strings.Repeat("{\"id\":1,\"name\":\"\"}\n", 1000)
	transfer.Each(t.Context(), transfer.NewReader(strings.NewReader(same)), 16,
		func(_ context.Context, row transfer.Row) error {
			runtime.Gosched()
			if before := last.Swap(row.Line); before != row.Line-1 {
				t.Errorf("line %d was done after line %d", row.Line, before)
			}
			return nil
		})
	// A read that blocks does not prevent the end.
	ctx, cancel := context.WithCancelCause(t.Context())
	in, out := io.Pipe()
	defer out.Close()
	go io.WriteString(out, "{\"id\":1,\"name\":\"\"}\n{\"id\":2,\"name\":\"\"}\n")
	line, err := transfer.Each(ctx, transfer.NewReader(in), 4, func(_ context.Context, row transfer.Row) error {
		if row.Plant.ID == 2 {
			cancel(io.ErrUnexpectedEOF)
		}
		return nil
	})
	if line < 2 || line > 3 || err != io.ErrUnexpectedEOF {
		t.Errorf("while a read blocks: line %d, %v", line, err)
	}
}
