package storage

import (
	"fmt"
	"slices"
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
