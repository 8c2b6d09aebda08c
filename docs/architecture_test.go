package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// The code in ARCHITECTURE.md is that of a file that the paragraph before it links to: the same lines in the same
// order, where … stands for any others.
func TestExcerpts(t *testing.T) {
	parts := strings.Split(read(t, "../ARCHITECTURE.md"), "```")
	link := regexp.MustCompile(`\]\((internal/[^)]+\.go)\)`)
	if len(parts) < 10 {
		t.Fatalf("ARCHITECTURE.md has %d parts", len(parts))
	}
	for i := 1; i < len(parts); i += 2 {
		excerpt, found := strings.TrimPrefix(parts[i], "go\n"), false
		for _, m := range link.FindAllStringSubmatch(parts[i-1], -1) {
			found = found || contains(read(t, "../"+m[1]), excerpt)
		}
		if !found {
			t.Errorf("no file that is linked before it contains\n%s", excerpt)
		}
	}
}

// contains reports whether text has the parts of an excerpt, separated by lines with …, in their order.
func contains(text, excerpt string) bool {
	for part := range strings.SplitSeq(excerpt, "\t…\n") {
		_, after, ok := strings.Cut(text, part)
		if !ok {
			return false
		}
		text = after
	}
	return true
}
