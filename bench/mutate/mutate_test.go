package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const toy = `package toy

import "errors"

var errNegative = errors.New("negative")

func Sum(limit int, values []int) (int, error) {
	sum := 0
	for _, v := range values {
		if v < 0 {
			return 0, errNegative
		}
		sum += v
	}
	return min(sum, limit), nil
}
`

const strong = `package toy

import "testing"

func TestSum(t *testing.T) {
	if got, err := Sum(5, []int{0, 1, 3}); got != 4 || err != nil {
		t.Errorf("Sum = %d, %v, want 4", got, err)
	}
	if got, err := Sum(5, []int{-1}); got != 0 || err != errNegative {
		t.Errorf("Sum = %d, %v, want errNegative", got, err)
	}
}
`

const weak = `package toy

import "testing"

func TestSum(t *testing.T) { _, _ = Sum(5, []int{1, 3}) }
`

// module writes a module with the package toy and returns its directory.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module toy\n\ngo 1.26\n"
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestStrongTest(t *testing.T) {
	dir := module(t, map[string]string{"toy.go": toy, "toy_test.go": strong})
	var out strings.Builder
	if err := run(options{dir: dir, count: 100, seed: 1, min: 100}, []string{"."}, &out); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "100.0 %") {
		t.Errorf("a test that detects everything scores\n%s", &out)
	}
	if source, err := os.ReadFile(filepath.Join(dir, "toy.go")); err != nil || string(source) != toy {
		t.Errorf("the source changed: %v\n%s", err, source)
	}
}

func TestWeakTest(t *testing.T) {
	dir := module(t, map[string]string{"toy.go": toy, "toy_test.go": weak})
	var out strings.Builder
	err := run(options{dir: dir, count: 100, seed: 1, min: 90}, []string{"."}, &out)
	if err == nil || !strings.Contains(err.Error(), "is below 90.0 %") {
		t.Errorf("run = %v, want a score below 90", err)
	}
	want := "survived  toy.go:11\n\t- return 0, errNegative\n\t+ return 0, nil\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("missing %q in\n%s", want, &out)
	}
}

func TestFailingTest(t *testing.T) {
	dir := module(t, map[string]string{"toy.go": strings.Replace(toy, "+=", "-=", 1), "toy_test.go": strong})
	err := run(options{dir: dir, count: 100, seed: 1}, []string{"."}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "the tests fail without a mutation") {
		t.Errorf("run = %v, want an error", err)
	}
}
