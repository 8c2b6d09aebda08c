// Package docs_test checks what the documents say against the tree.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages returns the text of every document, by path relative to the root of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "bench/*.md"} {
		paths, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("Glob(%s) = %v, %v", pattern, paths, err)
		}
		for _, path := range paths {
			all[strings.TrimPrefix(filepath.ToSlash(path), "../")] = read(t, path)
		}
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for page, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
	}
}

// The path of a create and the walk through a change name files in plain text too.
func TestPaths(t *testing.T) {
	path := regexp.MustCompile("`((?:internal|cmd|client|api|deploy|docs)(?:/[a-z0-9_.-]+)+)`")
	for page, text := range pages(t) {
		for _, m := range path.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
				t.Errorf("%s names %s: %v", page, m[1], err)
			}
		}
	}
}

func TestFlags(t *testing.T) {
	serve := read(t, "../cmd/plantstore/serve.go") + read(t, "../cmd/plantstore/database.go")
	rows := regexp.MustCompile("(?m)^\\| `--([a-z-]+)`").FindAllStringSubmatch(read(t, "../README.md"), -1)
	if len(rows) < 10 {
		t.Fatalf("README has %d rows of flags", len(rows))
	}
	for _, m := range rows {
		if !strings.Contains(serve, `"`+m[1]+`"`) {
			t.Errorf("README names --%s, which serve does not have", m[1])
		}
	}
}

// Every test that a document names as evidence exists. After -run, or before …, a name is the start of several.
func TestEvidence(t *testing.T) {
	source := testSource(t)
	name := regexp.MustCompile(`(-run )?\b((?:Test|Fuzz)[A-Z]\w+)(…)?`)
	for page, text := range pages(t) {
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			want := "func " + m[2]
			if m[1] == "" && m[3] == "" {
				want += "("
			}
			if !strings.Contains(source, want) {
				t.Errorf("%s names %s, which does not exist", page, m[0])
			}
		}
	}
}

func TestMakeTargets(t *testing.T) {
	makefile := read(t, "../Makefile")
	target := regexp.MustCompile("`make ([a-z-]+)")
	for page, text := range pages(t) {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).MatchString(makefile) {
				t.Errorf("%s names make %s, which the Makefile does not have", page, m[1])
			}
		}
	}
}

// testSource returns the source of every test in the repository.
func testSource(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			all.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
