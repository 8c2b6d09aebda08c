// Package testkit is the harness of the tests of the real binary. It builds the product once for all test packages,
// starts it on either engine, stops and kills it, sends requests to it, and reads its log and what the system knows
// of its process.
//
//	func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
//
//	func TestRestart(t *testing.T) {
//		db := testkit.Engines[0].Database(t)
//		s := testkit.Start(t, db)
//		testkit.WantResponse(t, "create", s.Create(t, `{"id":1,"name":"Fern"}`), 200, `{"name":"Fern"}`)
//		s.Kill()
//		s = testkit.StartAgain(t, s, db)
//		testkit.WantResponse(t, "read", s.Do(t, "GET", "/plants/1", ""), 200, `{"id":1,"name":"Fern"}`)
//	}
package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/test/testkit/missing"
)

// Deadline is how long a test waits for something that must happen. It is generous, since the machine may be busy.
const Deadline = 60 * time.Second

// WaitFor waits until a condition holds and ends the test if it does not within the deadline.
func WaitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > Deadline {
			t.Fatalf("waited %v for %s", Deadline, what)
		}
	}
}

// Long skips a test that is not part of make test; make test-all runs it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs this test")
	}
}

// Must returns a function that ends the test if do fails.
func Must(t testing.TB, do func() error) func() {
	return func() {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}

// Unavailable is missing.Report.
func Unavailable(t testing.TB, format string, args ...any) {
	t.Helper()
	missing.Report(t, format, args...)
}

// DeployFile returns the text of a file in deploy/.
func DeployFile(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(), "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// CodeBlock returns the first code block in a language below a heading of a file of the documentation.
func CodeBlock(t testing.TB, file, heading, language string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(), file))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n"+heading+"\n")
	_, block, _ := strings.Cut(section, "```"+language+"\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatalf("%s has no %s below %s", file, language, heading)
	}
	return block
}

// ReplaceOnce replaces a text that must occur exactly once.
func ReplaceOnce(t testing.TB, text, from, to string) string {
	t.Helper()
	if n := strings.Count(text, from); n != 1 {
		t.Fatalf("%q occurs %d times, want once", from, n)
	}
	return strings.Replace(text, from, to, 1)
}
