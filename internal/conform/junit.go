package conform

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// JUnit writes the report in the format that CI systems read: a test suite for each level.
func (r Report) JUnit(w io.Writer) error {
	type message struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	type testCase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Failure *message `xml:"failure,omitempty"`
		Skipped *message `xml:"skipped,omitempty"`
	}
	type suite struct {
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []testCase `xml:"testcase"`
	}
	all := struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		Suites  []suite  `xml:"testsuite"`
	}{Name: "plantstore conform " + r.URL}
	for _, level := range Levels {
		s := suite{Name: level}
		for _, result := range r.Results {
			if result.Level != level {
				continue
			}
			c := testCase{Name: result.ID + " " + result.Title, Class: level}
			switch result.Outcome {
			case Failed, Fixed:
				c.Failure = &message{result.Clause, strings.Join(result.Lines(), "\n")}
				s.Failures++
			case Skipped, Known:
				c.Skipped = &message{Message: cmp.Or(result.Reason, "it is known to fail")}
				s.Skipped++
			}
			s.Cases = append(s.Cases, c)
		}
		if s.Tests = len(s.Cases); s.Tests > 0 {
			all.Suites = append(all.Suites, s)
		}
	}
	text, _ := xml.MarshalIndent(all, "", "  ") // texts and numbers
	_, err := fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}

// Lines returns what a person needs to repeat and to correct a case that failed.
func (r Result) Lines() (lines []string) {
	if r.Outcome == Fixed {
		return []string{"clause    " + r.Clause, "result    it passes: remove it from the known failures"}
	}
	add := func(label, text string) {
		for line := range strings.Lines(text) {
			lines = append(lines, label+strings.TrimRight(line, "\n"))
			label = "          "
		}
	}
	add("clause    ", r.Clause)
	add("request   ", r.Request)
	add("response  ", r.Response)
	add("expected  ", strings.Join(r.Expected, "\n"))
	return lines
}
