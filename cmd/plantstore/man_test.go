package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"plantstore/test/testkit/missing"
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
	topic, _, _ := root.Find([]string{"exit-codes"})
	topic.Run = func(*cobra.Command, []string) {} // otherwise it has no page
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
	if *manFolder != "" {
		return
	}
	eachCommand(func(cmd *cobra.Command) {
		page := filepath.Join(folder, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
		t.Run(filepath.Base(page), func(t *testing.T) { checkPage(t, page, cmd) })
	})
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

// checkPage renders a page, and that it has the flags of its command.
func checkPage(t *testing.T, page string, cmd *cobra.Command) {
	lint, err := exec.Command("mandoc", "-Tlint", "-Wwarning", page).CombinedOutput()
	if err != nil && len(lint) == 0 {
		missing.Report(t, "%v", err)
	}
	for line := range strings.Lines(string(lint)) {
		// A page has no day, and no page of another program is installed.
		if !strings.Contains(line, "TH") && !strings.Contains(line, "Xr") {
			t.Errorf("mandoc: %s", line)
		}
	}
	text, err := os.ReadFile(page)
	plain := strings.ReplaceAll(string(text), `\`, "")
	if err != nil || strings.Contains(plain, "cobra") || !strings.Contains(plain, cmd.Short) {
		t.Errorf("%v %s", err, text)
	}
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		if !strings.Contains(plain, "--"+fl.Name) {
			t.Errorf("the page lacks --%s:\n%s", fl.Name, plain)
		}
	})
}
