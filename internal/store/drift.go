package store

import (
	"fmt"
	"slices"
	"strings"
)

// Drift returns why tables could lose or change plants or tokens, as sentences. A line is the name of a table, ": " and
// "column " with a column, which ends with NOT NULL if every insert must set it, "key " with a primary key, or the end
// of a sentence about something that no table may have. Further columns are allowed if inserts need not set them.
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
			problems = append(problems, fmt.Sprintf("table %s has the %s, which inserts do not set; drop it", table, fact))
		}
	}
	return problems
}
