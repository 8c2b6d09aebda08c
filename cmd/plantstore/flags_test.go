package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestParseLifetime(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1d": day, "90d": 90 * day, "36500d": 36500 * day, "876000h": 36500 * day,
		"12h": 12 * time.Hour, "30m": 30 * time.Minute, "1s": time.Second, "1ns": 1, "+2d": 2 * day,
	} {
		if got, err := parseLifetime(text); got != want || err != nil {
			t.Errorf("parseLifetime(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "d", "0d", "-1d", "0s", "-1s", "36501d", "876000h1ns", "-106752d", "106752d", "9223372036854775808d",
		"1.5d", "90", "soon", "1d12h", "1 d",
	} {
		got, err := parseLifetime(text)
		want := `--expires is "` + text + `": use a lifetime such as 90d, 12h or 30m, at most 36500d`
		if got != 0 || err == nil || err.Error() != want {
			t.Errorf("parseLifetime(%q) = %v, %v, want the error %s", text, got, err, want)
		}
	}
}

func TestFlagsFirst(t *testing.T) {
	for args, want := range map[string]string{
		"":                      "--",
		"7":                     "-- 7",
		"-7":                    "-- -7",
		"-0":                    "-- -0",
		"-9":                    "-- -9",
		"-/":                    "-/ --",
		"-:":                    "-: --",
		"-":                     "-- -",
		"7 --text a":            "--text a -- 7",
		"--text a 7":            "--text a -- 7",
		"7 --text -1":           "--text -1 -- 7",
		"7 --text=a 8":          "--text=a -- 7 8",
		"7 --switch 8":          "--switch -- 7 8",
		"7 -switch -text a":     "-switch -text a -- 7",
		"--unknown 7":           "--unknown -- 7",
		"7 --text":              "--text",
		"7 -- --text":           "-- 7 --text",
		"--text -- -- --switch": "--text -- -- --switch",
	} {
		f := newFlags(environment{}, "test", "", "")
		f.String("text", "", "")
		f.Bool("switch", false, "")
		if got := strings.Join(f.flagsFirst(strings.Fields(args)), " "); got != want {
			t.Errorf("flagsFirst(%s) = %s, want %s", args, got, want)
		}
	}
}

// A flag overrides its variable, which overrides the default.
func TestParse(t *testing.T) {
	for _, test := range []struct {
		args      string
		v         variables
		names     []string
		count     int
		name      string
		arguments string
		stderr    string // of invalid usage
	}{
		{"", nil, nil, 1, "default", "", ""},
		{"", variables{"PLANTSTORE_MAX_COUNT": "2", "PLANTSTORE_NAME": "x"}, nil, 2, "x", "", ""},
		{"--max-count 3", variables{"PLANTSTORE_MAX_COUNT": "2"}, nil, 3, "default", "", ""},
		{"--max-count 1", variables{"PLANTSTORE_MAX_COUNT": "2"}, nil, 1, "default", "", ""},
		{"--max-count 3", variables{"PLANTSTORE_MAX_COUNT": "many"}, nil, 3, "default", "", ""},
		{"--name=", variables{"PLANTSTORE_NAME": "x"}, nil, 1, "", "", ""},
		{"a b", nil, []string{"ONE", "TWO"}, 1, "default", "a b", ""},
		{"a", nil, nil, 0, "", "", "plantstore test: expected arguments: none; got: [\"a\"]\n"},
		{"a", nil, []string{"ONE", "TWO"}, 0, "", "", "plantstore test: expected arguments: ONE TWO; got: [\"a\"]\n"},
		{"a b", nil, []string{"ONE"}, 0, "", "", "plantstore test: expected arguments: ONE; got: [\"a\" \"b\"]\n"},
		{"--nope", nil, nil, 0, "", "", "flag provided but not defined: -nope\n"},
		{"--max-count x", nil, nil, 0, "", "", "invalid value \"x\" for flag -max-count: parse error\n"},
		{"", variables{"PLANTSTORE_MAX_COUNT": "x", "PLANTSTORE_WAIT": "y"}, nil, 0, "", "",
			"plantstore test: PLANTSTORE_MAX_COUNT=\"x\": parse error\n"},
	} {
		var stderr bytes.Buffer
		f := newFlags(environment{stderr: &stderr, getenv: test.v.get}, "test", "", "")
		count := f.Int("max-count", 1, "")
		name := f.String("name", "default", "")
		f.Duration("wait", 0, "")
		rest, err := f.parse(strings.Fields(test.args), test.names...)
		if test.stderr != "" {
			if err != errUsage || stderr.String() != test.stderr {
				t.Errorf("%q %v: %v, %q, want %q", test.args, test.v, err, stderr.String(), test.stderr)
			}
			continue
		}
		arguments := strings.Join(rest, " ")
		if err != nil || *count != test.count || *name != test.name || arguments != test.arguments || stderr.Len() > 0 {
			t.Errorf("%q %v: %d %q %q, %v %s", test.args, test.v, *count, *name, arguments, err, stderr.String())
		}
	}
}

func TestSecret(t *testing.T) {
	f := newFlags(environment{getenv: variables{"PLANTSTORE_TOKEN": "from the environment"}.get}, "test", "", "")
	for content, want := range map[string]string{
		"token": "token", "token\n": "token", " token \r\n\n": "token", "two words\n": "two words",
	} {
		if got, _, err := f.secret("PLANTSTORE_TOKEN", tempFile(t, content)); got != want || err != nil {
			t.Errorf("the secret of a file with %q is %q, %v, want %q", content, got, err, want)
		}
	}
	for _, content := range []string{"", " \n"} {
		file := tempFile(t, content)
		got, _, err := f.secret("PLANTSTORE_TOKEN", file)
		if want := "the token file " + file + " is empty"; got != "" || err == nil || err.Error() != want {
			t.Errorf("the secret of a file with %q is %q, %v, want the error %s", content, got, err, want)
		}
	}
	const missing = "read the token file: open /nowhere: no such file or directory"
	if got, _, err := f.secret("PLANTSTORE_TOKEN", "/nowhere"); got != "" || err == nil || err.Error() != missing {
		t.Errorf("the secret of a missing file is %q, %v", got, err)
	}
	if got, _, err := f.secret("PLANTSTORE_TOKEN", ""); got != "from the environment" || err != nil {
		t.Errorf("the secret without a file is %q, %v", got, err)
	}
}
