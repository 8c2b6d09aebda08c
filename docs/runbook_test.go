package docs_test

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Programs, settings and files of the system that the runbook names.
var system = strings.Fields("curl df dmesg docker du fuser go iostat journalctl kill max_connections on pg_hba.conf " +
	"pg_isready psql SELECT ss")

// program is what the runbook may name.
type program struct {
	source   string                     // code without tests, in which strings are not split over lines
	rules    string                     // alerts
	table    string                     // flags and variables, which another test compares with the commands
	commands []string                   // such as "token list"
	flags    map[string]map[string]bool // by command; "" for those of any command
}

// add adds a command, unless it is known.
func (p *program) add(name string) {
	if p.flags[name] == nil {
		p.commands = append(p.commands, name)
		p.flags[name] = map[string]bool{}
	}
}

func newProgram(t *testing.T) *program {
	t.Helper()
	p := &program{flags: map[string]map[string]bool{"": {}}}
	p.source = regexp.MustCompile(`" ?\+\s*"`).ReplaceAllString(sourceFiles(t, false), "")
	p.rules = read(t, "../deploy/prometheus/plantstore.rules.yml")
	for _, name := range []string{"serve", "version"} { // the table has the others
		p.add(name)
	}
	_, p.table, _ = strings.Cut(read(t, "operations.md"), "<!-- flags:begin -->")
	p.table, _, _ = strings.Cut(p.table, "<!-- flags:end -->")
	serve, _, _ := strings.Cut(p.table, "### Other commands")
	row := regexp.MustCompile("(?m)^\\| `(--[a-z-]+).*\\|(.*)\\|$")
	for i, table := range []string{serve, p.table[len(serve):]} {
		for _, m := range row.FindAllStringSubmatch(table, -1) {
			for _, command := range append(strings.Split(m[2], ","), "") {
				name := strings.Trim(command, " `")
				p.add(name)
				p.flags[name][m[1]] = true
			}
			if i == 0 {
				p.flags["serve"][m[1]] = true
			}
		}
	}
	return p
}

// problem returns what is wrong with a text in back quotes or a line of a command block, or "".
func (p *program) problem(text string) string {
	name, text := "", strings.TrimPrefix(text, "sudo -u plantstore ")
	if m := regexp.MustCompile(`(?:^|[ /])plantstore ([a-z][a-z-]*(?: [a-z]+)?)`).FindStringSubmatch(text); m != nil {
		if name = m[1]; !slices.Contains(p.commands, name) {
			return "there is no command " + name
		}
	}
	for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(text, -1) {
		if !p.flags[name][flag] {
			return "there is no flag " + flag + " of " + cmp.Or(name, "any command")
		}
	}
	for _, variable := range regexp.MustCompile(`PLANTSTORE_[A-Z_]+`).FindAllString(text, -1) {
		if !strings.Contains(p.table, variable) {
			return "there is no variable " + variable
		}
	}
	first, _, _ := strings.Cut(text, " ")
	switch {
	case name != "" || strings.HasPrefix(text, "--") || strings.HasPrefix(text, "PLANTSTORE_"),
		slices.Contains(system, first), slices.Contains(p.commands, text):
	case regexp.MustCompile(`^[a-z_]+$`).MatchString(text): // a field of the log, a metric or a label
		literal := regexp.MustCompile(`"` + strings.TrimSuffix(text, "_count") + `(_count)?"`)
		if !literal.MatchString(p.source) && !strings.Contains(p.rules, " "+text+":") {
			return "it is not a string of the code"
		}
	case !strings.Contains(p.source+p.rules, text):
		return "it is not in the code"
	}
	return ""
}

// Everything that the runbook quotes is one of the program, or of the system, and it has every alert.
func TestRunbook(t *testing.T) {
	page, p := read(t, "runbook.md"), newProgram(t)
	var texts []string
	for _, m := range regexp.MustCompile("(?m)`([^`\n]+)`|^\\$ ([^#\n]+)").FindAllStringSubmatch(page, -1) {
		texts = append(texts, strings.TrimSpace(strings.ReplaceAll(m[1]+m[2], `\|`, "|")))
	}
	if len(texts) < 100 {
		t.Errorf("runbook.md quotes %d texts", len(texts))
	}
	for _, text := range texts {
		if problem := p.problem(text); problem != "" {
			t.Errorf("runbook.md quotes %q: %s", text, problem)
		}
	}
	alert := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?runbook_url: docs/runbook\.md(#\S+)\n`)
	for _, m := range alert.FindAllStringSubmatch(p.rules, -1) {
		row := regexp.MustCompile("(?m)^\\|.*`" + m[1] + "`.*\\(" + m[2] + "\\) \\|$")
		if !row.MatchString(page) || !slices.Contains(anchors(page), m[2]) {
			t.Errorf("runbook.md does not have the alert %s with its section %s", m[1], m[2])
		}
	}
}
