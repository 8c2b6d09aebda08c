package main

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"plantstore/internal/conform"
)

// The service passes all cases, also in two runs at once and in a store with plants, and its plants stay as they were.
func TestConform(t *testing.T) {
	url, _, _ := startService(t, filepath.Join(t.TempDir(), "plants.db"))
	v := variables{"PLANTSTORE_URL": url, "PLANTSTORE_TOKEN": fixedToken}
	for _, id := range []string{"-9223372036854775808", "1", "9223372036854775807"} {
		plantstore(t, v, "plants", "create", "--name", "Conform", "--id="+id)
	}
	before := plantstore(t, v, "plants", "list")
	const output = `skipped 1: id -9223372036854775808 returned 400, so it may belong to another plant
skipped 1: id 9223372036854775807 returned 400, so it may belong to another plant
skipped 1: needs --restart
skipped 2: needs --webhook-listen
LEVEL          PASSED  FAILED  KNOWN  SKIPPED
specification  35      0       0      2
sample         8       0       0      1
plantstore     41      0       0      2
`
	var together sync.WaitGroup
	for range 2 {
		together.Go(func() { plantstore(t, v, "conform").want(t, "conform", 0, output, "") })
	}
	together.Wait()
	after := plantstore(t, v, "plants", "list")
	after.want(t, "the plants after the run", 0, before.stdout, "")
	if strings.Count(before.stdout, "Conform") != 3 {
		t.Error("the plants before the run:", before)
	}
}

// losesTag is a server whose responses have no tag.
func losesTag(t *testing.T) *scripted {
	return script(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"name":"Fern"}`)
	})
}

// A failure is printed as docs/conformance.md shows it. The other reports and the exit code agree with it.
func TestConformReports(t *testing.T) {
	s, v, junit := losesTag(t), variables{"PLANTSTORE_TOKEN": fixedToken}, filepath.Join(t.TempDir(), "junit.xml")
	page, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	failure := regexp.MustCompile(`(?s)FAIL spec-04.*?\n\n`).FindString(string(page))
	differs := regexp.MustCompile(`"id":\d+|http:[^/]*//[^/]*`)
	const fixed = "FAIL spec-03 the response to a plant without a tag has no tag\n" +
		"  clause    A Plant object: name (string, required), tag (string, optional).\n" +
		"  result    it passes: remove it from the known failures\n\n"
	const table = "LEVEL          PASSED  FAILED  KNOWN  SKIPPED\nspecification  "
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"--level specification", failure + table + "1       1       0      0\n", 1},
		{"--known-failing " + tempFile(t, "# tags\n spec-04 # empty\r\n\n"), table + "1       0       1      0\n", 0},
		{"--known-failing " + tempFile(t, "spec-04\nspec-03"), fixed + table + "0       1       1      0\n", 1},
		{"--run spec-04|sample- --junit " + junit, failure + "skipped 9: level sample is not claimed; add --level sample\n" +
			table + "0       1       0      0\nsample         0       0       0      9\n", 1},
	} {
		args := append([]string{"conform", s.URL, "--run", "spec-0[34]"}, strings.Fields(test.args)...)
		got := plantstore(t, v, args...)
		same := differs.ReplaceAllString(got.stdout, "") == differs.ReplaceAllString(test.want, "")
		if got.code != test.code || got.stderr != "" || !same {
			t.Errorf("conform %s: %+v, want exit %d and\n%s", test.args, got, test.code, test.want)
		}
		var report conform.Report
		got = plantstore(t, v, append(args, "--json")...)
		err := json.Unmarshal([]byte(got.stdout), &report, json.RejectUnknownMembers(true))
		if err != nil || got.code != test.code || got.stderr != "" || report.OK() != (test.code == 0) || report.URL != s.URL {
			t.Errorf("conform %s --json: %v %+v", test.args, err, got)
		}
	}
	text, err := os.ReadFile(junit)
	want := regexp.MustCompile(`(?s)<testsuite name="specification" tests="1" failures="1" skipped="0">.*` +
		`<testsuite name="sample" tests="9" failures="0" skipped="9">.*<skipped message="level sample is not claimed; `)
	if err != nil || xml.Unmarshal(text, new(struct{})) != nil || !want.Match(text) {
		t.Errorf("%v\n%s", err, text)
	}
	got := plantstore(t, nil, "conform", "--list", "--level", "specification", "--run", "an empty [nt]")
	got.want(t, "--list", 0, "CASE     LEVEL          TITLE\nspec-04  specification  an empty tag is returned\n"+
		"spec-05  specification  an empty name is accepted\n", "")
	var cases []conform.Case
	err = json.Unmarshal([]byte(plantstore(t, nil, "conform", "--list", "--json").stdout), &cases)
	if err != nil || !reflect.DeepEqual(cases, conform.Cases()) {
		t.Errorf("%v: %d cases", err, len(cases))
	}
}

// A wrong command line is refused before a request is sent.
func TestConformUsage(t *testing.T) {
	s, file := losesTag(t), tempFile(t, "spec-01\nspec-99\n")
	v := variables{"PLANTSTORE_URL": s.URL, "PLANTSTORE_TOKEN": fixedToken}
	const none = "--run matches no case of these levels; see plantstore conform --list"
	for args, want := range map[string]string{
		"--level all": `--level is "all": use specification, sample, plantstore`,
		"--webhook-listen :9000": "--webhook-listen is \":9000\": " +
			"name a host that the server can reach, such as 127.0.0.1:9000",
		"--run (":                    "--run is \"(\": error parsing regexp: missing closing ): `(`",
		"--run xyz":                  none,
		"--run xyz --list":           none,
		"--level sample --run spec-": none,
		"--known-failing /nowhere":   `--known-failing is "/nowhere": open /nowhere: no such file or directory`,
		"--known-failing " + file: `--known-failing is "` + file +
			`": it has the case "spec-99", which does not exist; see plantstore conform --list`,
		"--junit /nowhere/x": `--junit is "/nowhere/x": open /nowhere/x: no such file or directory`,
		"--token=": "a token is required: set PLANTSTORE_TOKEN or --token-file; " +
			"use any text if the server needs none",
		"127.0.0.1:80":   `base URL "127.0.0.1:80" is invalid: use one such as http://127.0.0.1:8080`,
		"http://u:p@a.b": "the base URL must have no user, query or fragment",
	} {
		got := plantstore(t, v, append([]string{"conform", "--token", "t"}, strings.Fields(args)...)...)
		got.want(t, args, 2, "", "plantstore conform: "+want+"\n")
	}
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
	s.Close()
	got := plantstore(t, v, "conform", s.URL, "--token", "t")
	if got.code != unreachable || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("no server: %+v", got)
	}
}

// A server that refuses the token gets no case.
func TestConformRefused(t *testing.T) {
	s := script(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	got := plantstore(t, variables{"PLANTSTORE_TOKEN": fixedToken}, "conform", s.URL)
	got.want(t, "refused", 6, "", "plantstore conform: the server refused the token: an empty POST /plants returned 401\n")
	if all := s.requests(); len(all) != 1 || all[0].Method != http.MethodPost || all[0].ContentLength != 0 {
		t.Errorf("%d requests, want an empty POST", len(all))
	}
}

// A run that checked nothing fails.
func TestConformAllSkipped(t *testing.T) {
	s, v := losesTag(t), variables{"PLANTSTORE_TOKEN": fixedToken}
	got := plantstore(t, v, "conform", s.URL, "--run", "store-43", "--level=plantstore")
	got.want(t, "all skipped", 1, "skipped 1: needs --restart\nLEVEL       PASSED  FAILED  KNOWN  SKIPPED\n"+
		"plantstore  0       0       0      1\n", "plantstore conform: every case was skipped\n")
}

// A signal stops the run. What it has created is removed.
func TestConformInterrupted(t *testing.T) {
	s := script(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && r.Header.Get("Authorization") == "" { // the second request of sample-07
			syscall.Kill(os.Getpid(), syscall.SIGINT)
			<-r.Context().Done()
		}
	})
	junit := filepath.Join(t.TempDir(), "junit.xml")
	got := plantstore(t, variables{"PLANTSTORE_TOKEN": fixedToken}, "conform", s.URL, "--level=sample", "--run=sample-07",
		"--junit="+junit)
	got.want(t, "interrupted", 1, "", "plantstore conform: interrupted\n")
	if text, err := os.ReadFile(junit); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the report of CI systems: %v, %q", err, text)
	}
	last := s.requests()[len(s.requests())-1]
	if last.Method != http.MethodDelete || last.Header.Get("Authorization") == "" {
		t.Errorf("the last request is %s %s, want that the plant is deleted", last.Method, last.URL)
	}
}

// The error of the first request has no token, which a server can put into a header that can't be parsed.
func TestConformHidesToken(t *testing.T) {
	for response, code := range map[string]int{
		"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://x/%zz" + fixedToken + "\r\n\r\n":  unreachable,
		"HTTP/1.1 200 OK\r\n" + fixedToken + "\r\n\r\n":                                        unreachable,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + fixedToken + "\r\n\r\n": 1, // a trailer
	} {
		s := script(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(c, response)
			c.Close()
		})
		got := plantstore(t, variables{"PLANTSTORE_TOKEN": fixedToken}, "conform", s.URL)
		hidden := strings.Contains(got.stderr, "$PLANTSTORE_TOKEN") && !strings.Contains(got.stderr, fixedToken)
		if got.code != code || got.stdout != "" || !hidden {
			t.Errorf("%q: %+v", response, got)
		}
	}
}
