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

// anchors returns the anchors of the headings of a page.
func anchors(page string) (all []string) {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped := regexp.MustCompile(`[^a-z0-9 _-]`)
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		text := dropped.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(text, " ", "-"))
	}
	return all
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

// sourceFiles returns the source of every test in the repository, or of everything else.
func sourceFiles(t *testing.T, tests bool) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && strings.HasSuffix(path, "_test.go") == tests {
			all.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// Every message that the runbook quotes is one that the program prints, and it has every alert.
func TestRunbook(t *testing.T) {
	rules := read(t, "../deploy/prometheus/plantstore.rules.yml")
	source := rules + regexp.MustCompile(`" ?\+\s*"`).ReplaceAllString(sourceFiles(t, false), "")
	quoted := regexp.MustCompile("`([^`]+)`")
	n := 0
	for line := range strings.Lines(read(t, "runbook.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if n++; !strings.Contains(source, m[1]) {
				t.Errorf("runbook.md quotes %q, which is not in the code", m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("runbook.md quotes %d messages", n)
	}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		if !strings.Contains(read(t, "runbook.md"), "`"+m[1]+"`") {
			t.Errorf("runbook.md does not have the alert %s", m[1])
		}
	}
}
