package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for _, test := range []struct {
		what, text string
		columns    int // of the terminal; 0 for a file
		want       string
	}{
		{"nothing", "", 0, ""},
		{"columns", "ID\tNAME\tTAG\n1\tFern\t\n-7\tIvy\tshade\n", 0, "ID  NAME  TAG\n1   Fern  \n-7  Ivy   shade\n"},
		{"columns that fit", "ID\tNAME\tTAG\n1\tFern\t\n", 13, "ID  NAME  TAG\n1   Fern  \n"},
		{"rows of different lengths", "a\tb\tc\nlonger\n", 0, "a       b  c\nlonger\n"},
		{"a long cell in a file", "ID\tNAME\tTAG\n1\t" + long + "\ta\n2\tFern\tb\n", 0,
			"ID  NAME" + strings.Repeat(" ", 38) + "TAG\n1   " + long + "  a\n2   Fern" + strings.Repeat(" ", 38) + "b\n"},
		{"a long cell on a terminal", "ID\tNAME\tTAG\n1\t" + long + "\ta\n2\tFern\tb\n", 20,
			"ID  NAME         TAG\n1   xxxxxxxxxx…  a\n2   Fern         b\n"},
		{"two long cells", "ID\tNAME\tTAG\n1\t" + long + "\t" + long + "\n", 20, "ID  NAME     TAG\n1   xxxxxx…  xxxxxx…\n"},
		{"more columns than fit", "AA\tBB\tCC\n", 3, "AA  BB  CC\n"},
		{"a long id and ETag", "ID\tNAME\tTAG\tETAG\n-9223372036854775808\tMonstera\tclimber\t0123456789abcdef\n", 40,
			"ID                    NAME  TAG   ETAG\n-9223372036854775808  Mon…  cli…  0123456789abcdef\n"},
		{"wide characters", "ID\tNAME\tTAG\n1\t龟背竹\ta\n2\tFern\tb\n", 0, "ID  NAME    TAG\n1   龟背竹  a\n2   Fern    b\n"},
		{"wide characters that are cut", "ID\tNAME\tTAG\n1\t龟背竹龟背竹\ta\n", 16, "ID  NAME     TAG\n1   龟背竹…  a\n"},
		{"half of a wide character", "ID\tNAME\tTAG\n1\t龟背竹龟背竹\ta\n", 15, "ID  NAME    TAG\n1   龟背…   a\n"},
		{"combining characters", "NAME\tTAG\nCafe\u0301\ta\n", 0, "NAME  TAG\nCafe\u0301  a\n"},
		{"an emoji", "NAME\tTAG\n🌵🌵🌵\ta\n", 0, "NAME    TAG\n🌵🌵🌵  a\n"},
	} {
		var out bytes.Buffer
		w := &table{out: &out, columns: test.columns, text: []int{1, 2}}
		fmt.Fprint(w, test.text)
		if err := w.Flush(); err != nil || out.String() != test.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", test.what, err, out.String(), test.want)
		}
		out.Reset()
		if err := w.Flush(); err != nil || out.Len() > 0 {
			t.Errorf("%s: printed again: %v %s", test.what, err, out.String())
		}
	}
	w := &table{out: fullDisk{}}
	fmt.Fprint(w, "a\n")
	if err := w.Flush(); err != errFullDisk {
		t.Errorf("to a full disk: %v", err)
	}
}
