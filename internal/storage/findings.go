package storage

import (
	"fmt"
	"slices"
	"strings"
)

// Finding is the result of one check of a database, a sentence for an operator.
type Finding struct {
	Check string `json:"check"`
	Level string `json:"level"` // ok, warning or problem
	Text  string `json:"text"`
}

// Findings are the results of all checks.
type Findings []Finding

// Add adds a finding of a level.
func (f *Findings) Add(check, level, format string, args ...any) {
	*f = append(*f, Finding{check, level, fmt.Sprintf(format, args...)})
}

// Passed adds what is in order, unless the check has found something else.
func (f *Findings) Passed(check, format string, args ...any) {
	if !slices.ContainsFunc(*f, func(found Finding) bool { return found.Check == check }) {
		f.Add(check, "ok", format, args...)
	}
}

// Drift compares tables with the tables of a new database. It returns sentences that say why plants or tokens could be
// lost or changed. Additional columns are allowed if inserts need not set them.
//
// A line of have or want is the name of a table, ": " and one of these:
//   - "column " and the definition of a column, which ends with NOT NULL if every insert must set it
//   - "key " and the columns of a primary key, or of another unique one
//   - the rest of a sentence about something that no table may have
func Drift(have, want []string) (problems []string) {
	for _, line := range want {
		if !slices.Contains(have, line) {
			problems = append(problems, "table "+strings.Replace(line, ": ", " lacks the ", 1)+"; add it, or restore a backup")
		}
	}
	for _, line := range have {
		table, fact, _ := strings.Cut(line, ": ")
		switch isColumn := strings.HasPrefix(fact, "column "); {
		case !isColumn && !strings.HasPrefix(fact, "key "):
			problems = slices.Insert(problems, 0, fmt.Sprintf("table %s %s", table, fact))
		case isColumn && strings.HasSuffix(fact, " NOT NULL") && !slices.Contains(want, line):
			problems = append(problems,
				fmt.Sprintf("table %s has the %s, which inserts do not set; drop the column", table, fact))
		}
	}
	return problems
}
