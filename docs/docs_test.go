// Package docs_test checks what the documents say against the tree.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// Every link leads to a file, and to a heading in it if it names one.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	for page, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := filepath.Join("..", page)
			if m[1] != "" {
				target = filepath.Join("..", filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(read(t, target)), m[2]) {
				t.Errorf("%s links to %s%s, a heading that does not exist", page, m[1], m[2])
			}
		}
	}
}

// anchors returns the anchors of a page: its headings and its elements with an id.
func anchors(page string) (all []string) {
	for _, m := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(page, -1) {
		all = append(all, "#"+m[1])
	}
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped := regexp.MustCompile(`[^a-z0-9 _-]`)
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		text := dropped.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(text, " ", "-"))
	}
	return all
}

// What a step of the walk through a change names in back quotes is declared in the files that it links to.
func TestWalkThrough(t *testing.T) {
	_, steps, _ := strings.Cut(read(t, "../CONTRIBUTING.md"), "## One change, file by file")
	steps, _, _ = strings.Cut(steps, "\n## ")
	link := regexp.MustCompile(`\]\(([^)]+\.(?:go|md|yaml))\)`)
	n := 0
	for _, step := range regexp.MustCompile(`(?m)^\d+\. `).Split(steps, -1)[1:] {
		var code strings.Builder
		for _, m := range link.FindAllStringSubmatch(step, -1) {
			code.WriteString(read(t, "../"+m[1]))
		}
		for _, m := range regexp.MustCompile("[^[]`([A-Za-z]+)`").FindAllStringSubmatch(step, -1) {
			declared := regexp.MustCompile(`(?m)^(?:\t|func (?:\(.*?\) )?|type |var )` + m[1] + `\b`)
			if n++; !declared.MatchString(code.String()) {
				t.Errorf("CONTRIBUTING.md names %s, which is not declared in the files of its step: %s", m[1], step)
			}
		}
	}
	if n < 10 {
		t.Errorf("the walk through a change names %d identifiers", n)
	}
}

// CONTRIBUTING.md names every package that .ci/install may install.
func TestPackages(t *testing.T) {
	page := strings.ToLower(read(t, "../CONTRIBUTING.md"))
	for _, m := range regexp.MustCompile(`(?m)^need (\S+)`).FindAllStringSubmatch(read(t, "../.ci/install"), -1) {
		if !strings.Contains(page, m[1]) {
			t.Errorf("CONTRIBUTING.md does not name %s", m[1])
		}
	}
}

// Every test that a document names as evidence exists. After -run, or before …, a name is the start of several.
func TestEvidence(t *testing.T) {
	source := sourceFiles(t, true)
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

// sourceFiles returns the source of every test in the repository except those in this folder, or of everything else.
func sourceFiles(t *testing.T, tests bool) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		isTest := strings.HasSuffix(path, "_test.go")
		if err == nil && strings.HasSuffix(path, ".go") && isTest == tests && filepath.Dir(path) != "../docs" {
			all.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
