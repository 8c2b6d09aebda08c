package main

import (
	"strings"
	"testing"
)

// script returns a command that prints lines and exits with a code.
func script(code string, lines ...string) []string {
	return []string{"sh", "-c", "printf '%s\n' \"$@\"; exit " + code, "sh", strings.Join(lines, "\n")}
}

var passed = script("0",
	`{"Action":"output","Package":"p/a","Test":"TestX","Output":"hidden\n"}`,
	`{"Action":"pass","Package":"p/a","Test":"TestX"}`,
	`{"Action":"output","Package":"p/a","Test":"TestY","Output":"    y_test.go:7: NOT TESTED: TestY: no strace\n"}`,
	`{"Action":"skip","Package":"p/a","Test":"TestY"}`,
	`{"Action":"pass","Package":"p/a","Elapsed":1.5}`,
	`{"Action":"skip","Package":"p/none"}`)

func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		commands [][]string
		want     string // lines of the output
		not      string
		err      string
	}{
		"passes": {commands: [][]string{passed}, not: "hidden",
			want: "ok      1.5s p/a\n\n1 packages in 0s. The slowest:\n   1.5s p/a\n\nNot tested:\nTestY: no strace\n"},
		"a failed test": {err: "1 packages failed", want: "reason\nFAIL    0.1s p/b\n", commands: [][]string{script("1",
			`{"Action":"output","Package":"p/b","Test":"TestX","Output":"reason\n"}`,
			`{"Action":"fail","Package":"p/b","Test":"TestX"}`, `{"Action":"fail","Package":"p/b","Elapsed":0.1}`), passed}},
		"a process that ended": {err: "1 packages failed", want: "panic: x\n", commands: [][]string{script("2",
			`{"Action":"output","Package":"p/b","Test":"TestX","Output":"panic: x\n"}`, `{"Action":"fail","Package":"p/b"}`)}},
		"a failed build": {err: "1 packages failed", want: "undefined: y\n", commands: [][]string{script("1",
			`{"ImportPath":"p/b","Action":"build-output","Output":"undefined: y\n"}`,
			`{"ImportPath":"p/b","Action":"build-fail"}`, `{"Action":"fail","Package":"p/b","FailedBuild":"p/b"}`)}},
		"a wrong flag": {err: "sh: exit status 2", want: "flag provided", commands: [][]string{script("2", "flag provided")}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := run(t.Context(), c.commands, nil, &out)
			if got := errorText(err); got != c.err {
				t.Errorf("error %q, want %q", got, c.err)
			}
			if got := out.String(); !strings.Contains(got, c.want) || c.not != "" && strings.Contains(got, c.not) {
				t.Errorf("output\n%s\nwant %q in it, and not %q", got, c.want, c.not)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestSplit(t *testing.T) {
	got := split([]string{"go", "test", "--", "env", "A=1", "go"})
	if len(got) != 2 || strings.Join(got[0], " ") != "go test" || strings.Join(got[1], " ") != "env A=1 go" {
		t.Errorf("split = %q", got)
	}
}
