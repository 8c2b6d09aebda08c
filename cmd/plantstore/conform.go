package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"plantstore/internal/conform"
	"plantstore/internal/telemetry"
	"plantstore/internal/webhook"
)

func conformCommand(env environment) *cobra.Command {
	f := env.command("conform [URL]", `
Check whether a server conforms to the API. It can be any server: it gets numbered cases, in levels.
specification has what the specification states, sample has list and remove of the public sample and
its webhook, and plantstore has the rest of what Plant Store describes. The default is what
info.x-conformance of /openapi.json claims, or specification.

Each failure is printed with its request as a curl command, the response, and what was expected. The
plants that it creates have random ids, and are removed where the server can. The exit code is 1 if a
case fails, or if one of --known-failing passes. A case that needs a flag, or a scope that the token
lacks, is skipped.`, `
  plantstore conform http://127.0.0.1:8080
  plantstore conform http://127.0.0.1:4010 --level specification --run 'tag|spec-0' --junit report.xml
  plantstore conform --list`)
	s := f.service()
	f.takes("[URL]", func(value string) error { *s.url = value; return nil })
	c := &conformance{service: s}
	c.levels = f.StringArray("level", nil, "check this `level`: specification, sample or plantstore;\nrepeatable")
	c.list = f.Bool("list", false, "print the cases, and run none")
	c.junit = f.String("junit", "", "write a report for CI systems to this `file`")
	c.known = f.String("known-failing", "", "`file` with the number of a case in each line:\nthese cases must fail")
	c.listen = f.String("webhook-listen", "", "`address` that receives webhooks, such as 127.0.0.1:9000;\n"+
		"the server must be able to reach it")
	c.again = f.String("restart", "", "shell `command` that restarts the server")
	f.Func("run", "run only cases whose number or title matches this `pattern`", func(text string) (err error) {
		c.only, err = regexp.Compile(text)
		return err
	})
	return f.runs(c.run)
}

type conformance struct {
	*service
	levels                      *[]string
	only                        *regexp.Regexp
	list                        *bool
	junit, known, listen, again *string
}

func (c *conformance) run(ctx context.Context) error {
	env, cases := c.f.env, conform.Cases()
	options := conform.Options{
		Token: *c.token, Levels: *c.levels, Only: c.only, Webhooks: *c.listen, Verify: webhook.Verify,
	}
	for _, level := range *c.levels {
		if !slices.Contains(conform.Levels, level) {
			return usagef("--level is %q: use %s", level, strings.Join(conform.Levels, ", "))
		}
	}
	if *c.list {
		cases = slices.DeleteFunc(cases, func(k conform.Case) bool { return !options.Selects(k) })
		line := func(k conform.Case) string { return k.ID + "\t" + k.Level + "\t" + k.Title }
		return printTable(env, *c.json, cases, nil, "CASE\tLEVEL\tTITLE", line, cases...)
	}
	if *c.token == "" {
		return usagef("a token is required: set PLANTSTORE_TOKEN or --token-file; use any text if the server needs none")
	}
	u, err := url.Parse(*c.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usagef("the URL is %q: use one such as http://127.0.0.1:8080", *c.url)
	}
	options.URL = u
	if options.Known, err = c.knownFailing(cases); err != nil {
		return err
	}
	if *c.again != "" {
		options.Restart = c.restart
	}
	if telemetry.IsTerminal(env.stderr) {
		options.Progress = func(done, all int) {
			fmt.Fprintf(env.stderr, "\r%-30s %d of %d ", strings.Repeat("█", 30*done/all), done, all)
		}
		defer fmt.Fprint(env.stderr, "\r\033[K")
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	report, err := conform.Run(ctx, options)
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case err != nil:
		return err
	}
	err = cmp.Or(c.print(report), c.writeJUnit(report))
	if err == nil && !report.OK() {
		err = exitError{code: 1} // the report says why
	}
	return err
}

// knownFailing returns the numbers in the file of --known-failing.
func (c *conformance) knownFailing(cases []conform.Case) (known []string, err error) {
	if *c.known == "" {
		return nil, nil
	}
	text, err := os.ReadFile(*c.known)
	for line := range strings.Lines(string(text)) {
		id, _, _ := strings.Cut(line, "#")
		if id = strings.TrimSpace(id); id == "" {
			continue
		}
		if !slices.ContainsFunc(cases, func(k conform.Case) bool { return k.ID == id }) {
			return nil, usagef("--known-failing has the case %q, which does not exist; see --list", id)
		}
		known = append(known, id)
	}
	if err != nil {
		err = usageError{err}
	}
	return known, err
}

func (c *conformance) restart(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", *c.again)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // a pipe would wait for a server that it starts
	return cmd.Run()
}

// print prints what failed, what was skipped and why, and a table of the levels.
func (c *conformance) print(r conform.Report) error {
	env := c.f.env
	if *c.json {
		return env.printJSON(r)
	}
	skipped := map[string]int{}
	for _, result := range r.Results {
		switch result.Outcome {
		case conform.Failed, conform.Fixed:
			fmt.Fprintf(env.stdout, "FAIL %s %s\n", result.ID, result.Title)
			for _, line := range result.Lines() {
				fmt.Fprintln(env.stdout, "  "+telemetry.Escape(line))
			}
			fmt.Fprintln(env.stdout)
		case conform.Skipped:
			skipped[result.Reason]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(env.stdout, "skipped %d: %s\n", skipped[reason], telemetry.Escape(reason))
	}
	w := newTable(env.stdout)
	fmt.Fprintln(w, "LEVEL\tPASSED\tFAILED\tKNOWN\tSKIPPED")
	for _, level := range conform.Levels {
		n := r.Of(level)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", level, n[conform.Passed], n[conform.Failed]+n[conform.Fixed], n[conform.Known],
			n[conform.Skipped])
	}
	return w.Flush()
}

func (c *conformance) writeJUnit(r conform.Report) error {
	if *c.junit == "" {
		return nil
	}
	file, err := os.Create(*c.junit)
	if err != nil {
		return err
	}
	return errors.Join(r.JUnit(file), file.Close())
}
