package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spf13/cobra/doc"
)

var manFolder = flag.String("man", "", "write the manual pages to this `folder`")

// TestManPages makes the manual pages, so that what converts them is not linked into the program.
func TestManPages(t *testing.T) {
	folder := *manFolder
	if folder == "" {
		folder = t.TempDir()
	}
	root := environment{}.commands()
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "Plant Store", Manual: "Plant Store"}
	if err := doc.GenManTree(root, header, folder); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(folder, "plantstore*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		indentFlags(t, page)
	}
}

// indentFlags makes the text of each flag an indented paragraph: cobra writes a tab before it.
func indentFlags(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^(?:\.PP\n)?(\\fB-.*)\n\t`).ReplaceAll(text, []byte(".TP\n$1\n"))
	if err := os.WriteFile(page, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
