package docs_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Programs, settings and files of the system that the pages name.
var system = strings.Fields("CI curl df dmesg docker du fuser go iostat journalctl kill max_connections npm on " +
	"pg_hba.conf pg_isready psql SELECT ss")

// tree is what a page may name.
type tree struct {
	source   string                     // code without tests, in which strings are not split over lines
	tests    string                     // code of tests
	others   string                     // rules, Makefile and module file
	makefile string                     // its targets are at the start of a line
	rules    string                     // alerts
	flags    map[string]map[string]bool // by command; "" for those of any command
}

// newTree reads the tree. The commands and their flags are those of configuration.md, which a test of the command line
// compares with the program.
func newTree(t *testing.T) *tree {
	t.Helper()
	p := &tree{
		source: regexp.MustCompile(`" ?\+\s*"`).ReplaceAllString(sourceFiles(t, false), ""), tests: sourceFiles(t, true),
		rules: read(t, "../deploy/prometheus/plantstore.rules.yml"), makefile: read(t, "../Makefile"),
		flags: map[string]map[string]bool{"": {}, "serve": {}, "version": {}},
	}
	p.others = p.rules + p.makefile + read(t, "../go.mod")
	flag := regexp.MustCompile("`(--[a-z-]+)`")
	row := regexp.MustCompile("(?m)^\\| `([a-z ]+)` \\| ((?:`--[a-z-]+` ?)*)\\|$|^\\| `(--[a-z-]+)` \\|")
	_, table, _ := strings.Cut(read(t, "configuration.md"), "<!-- flags:begin -->")
	_, clients, _ := strings.Cut(table, "### Clients of a service\n")
	clients, _, _ = strings.Cut(clients, "### Other commands\n")
	ofClients, _, _ := strings.Cut(clients, " Others:")
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		command, flags := cmp.Or(m[1], "serve"), m[2]+"`"+m[3]+"`"
		if strings.Contains(clients, m[0]) {
			flags += ofClients
		}
		if p.flags[command] == nil {
			p.flags[command] = map[string]bool{}
		}
		for _, f := range flag.FindAllStringSubmatch(flags, -1) {
			p.flags[command][f[1]], p.flags[""][f[1]] = true, true
		}
	}
	if len(p.flags) < 20 || len(p.flags["serve"]) < 20 {
		t.Fatalf("configuration.md has %d commands, serve has %d flags", len(p.flags), len(p.flags["serve"]))
	}
	return p
}

// problem returns what is wrong with a text in back quotes or a line of a command block, or "".
func (p *tree) problem(text string) string {
	name, text := "", strings.TrimPrefix(text, "sudo -u plantstore ")
	if m := regexp.MustCompile(`(?:^|[ /])plantstore ([a-z]+)(?: ([a-z]+))?`).FindStringSubmatch(text); m != nil {
		if name = m[1] + " " + m[2]; p.flags[name] == nil { // the second word is an argument
			name = m[1]
		}
		if p.flags[name] == nil {
			return "there is no command " + name
		}
	}
	if m := regexp.MustCompile(`^make ([a-z-]+)`).FindStringSubmatch(text); m != nil {
		if !regexp.MustCompile(`(?m)^` + m[1] + `:`).MatchString(p.makefile) {
			return "the Makefile does not have it"
		}
		return ""
	}
	first, _, _ := strings.Cut(text, " ")
	if first != "npm" && first != "go" {
		for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(text, -1) {
			if !p.flags[name][flag] && !slices.Contains(system, first) {
				return "there is no flag " + flag + " of " + cmp.Or(name, "any command")
			}
		}
	}
	for _, variable := range regexp.MustCompile(`PLANTSTORE_[A-Z_]*[A-Z]`).FindAllString(text, -1) {
		flag := "--" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(variable, "PLANTSTORE_"), "_", "-"))
		if !p.flags["serve"][flag] && !strings.Contains(p.source+p.tests, `"`+variable+`"`) {
			return "there is no variable " + variable
		}
	}
	_, noFile := os.Stat(filepath.Join("..", strings.TrimSuffix(text, "/...")))
	switch {
	case name != "" || strings.HasPrefix(text, "--") || strings.HasPrefix(text, "PLANTSTORE_"),
		slices.Contains(system, first), p.flags[text] != nil && text != "", noFile == nil:
	case regexp.MustCompile(`^[a-z]+\.[A-Z]\w*\(?`).MatchString(text): // such as testkit.Long(t)
		_, declared, _ := strings.Cut(text, ".")
		declared, _, _ = strings.Cut(declared, "(")
		return p.declares(declared)
	case regexp.MustCompile(`^[A-Za-z]*[A-Z][A-Za-z]*$`).MatchString(text) && !strings.HasPrefix(text, "Plantstore"):
		return p.declares(text)
	case regexp.MustCompile(`^[a-z_]+$`).MatchString(text): // a field of the log, a metric, a label or a variable
		literal := regexp.MustCompile(`"` + strings.TrimSuffix(text, "_count") + `(_count)?"`)
		if !literal.MatchString(p.source) && !strings.Contains(p.rules, " "+text+":") && p.declares(text) != "" {
			return "it is neither a string nor declared in the code"
		}
	case !strings.Contains(p.source+p.others, text):
		return "it is not in the code"
	}
	return ""
}

// declares returns what is wrong if no Go file declares a name.
func (p *tree) declares(name string) string {
	declared := regexp.MustCompile(`(?m)^(?:\t|func (?:\(.*?\) )?|type |var |const )` + name + `\b`)
	if declared.MatchString(p.source) || declared.MatchString(p.tests) {
		return ""
	}
	return "no Go file declares it"
}

// Everything that the runbook and the guide for contributors quote exists: identifiers, flags, commands, messages,
// metrics, files and variables. Of the other pages, the commands, flags, variables and paths do.
func TestQuoted(t *testing.T) {
	p, least := newTree(t), map[string]int{"docs/runbook.md": 100, "CONTRIBUTING.md": 40, "README.md": 4}
	other := regexp.MustCompile(`^plantstore (completion|help)`)
	command := regexp.MustCompile(`^(--[a-z]|PLANTSTORE_[A-Z]|(plantstore|make) [a-z]|(internal|cmd|api|deploy|docs)/)`)
	for page, text := range pages(t) {
		checked := 0
		for _, m := range regexp.MustCompile("(?m)`([^`\n]+)`|^\\$ ([^#\n]+)").FindAllStringSubmatch(text, -1) {
			quoted := strings.TrimSpace(strings.ReplaceAll(m[1]+m[2], `\|`, "|"))
			quoted = strings.TrimPrefix(quoted, "bin/")
			all := page == "docs/runbook.md" || page == "CONTRIBUTING.md"
			ofBench := strings.HasPrefix(page, "bench/") && strings.HasPrefix(quoted, "--")
			if !all && (!command.MatchString(quoted) || other.MatchString(quoted) || ofBench) {
				continue
			}
			checked++
			if problem := p.problem(quoted); problem != "" {
				t.Errorf("%s quotes %q: %s", page, quoted, problem)
			}
		}
		if checked < least[page] {
			t.Errorf("%s quotes %d texts that can be checked", page, checked)
		}
	}
}

// The check above can fail.
func TestQuotedCanFail(t *testing.T) {
	p := newTree(t)
	for _, wrong := range []string{
		"plantstore token forget", "plantstore token list --rate", "--no-flag", "PLANTSTORE_LISTENS", "make everything",
		"EditPlants", "storagetest.Everything(t)", "plantstore_queue_plant", "internal/plant/plants.go", "the disk is fine",
	} {
		if p.problem(wrong) == "" {
			t.Errorf("%q has no problem", wrong)
		}
	}
}

// The runbook has every alert, with the section that the rule names.
func TestAlertsInRunbook(t *testing.T) {
	page, rules := read(t, "runbook.md"), read(t, "../deploy/prometheus/plantstore.rules.yml")
	alert := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?runbook_url: docs/runbook\.md(#\S+)\n`)
	for _, m := range alert.FindAllStringSubmatch(rules, -1) {
		row := regexp.MustCompile("(?m)^\\|.*`" + m[1] + "`.*\\(" + m[2] + "\\) \\|$")
		if !row.MatchString(page) || !slices.Contains(anchors(page), m[2]) {
			t.Errorf("runbook.md does not have the alert %s with its section %s", m[1], m[2])
		}
	}
}
