package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"plantstore/client"
	"plantstore/internal/conform"
	"plantstore/internal/telemetry"
	"plantstore/internal/webhook"
)

func conformCommand(env environment) *cobra.Command {
	f := env.command("conform [URL]", `
Check any server of the API with numbered cases. Each wrong response is reported. The levels are
specification (create), sample (list, delete and the webhook of the public sample) and plantstore
(the rest of the API). Without --level, it checks the levels that info.x-conformance in
/openapi.json claims, or specification.

Each failure is printed with its request as a curl command, the response, and what was expected. The
cases create plants with random ids, and delete them if the server supports it. The exit code is 1 if
a case fails, if one of --known-failing passes, or if every case is skipped. A case that needs a
flag, or a scope that the token lacks, is skipped.`, `
  plantstore conform http://127.0.0.1:8080
  plantstore conform http://127.0.0.1:4010 --level specification --run 'tag|spec-0' --junit report.xml
  plantstore conform --list`)
	c := &conformance{service: f.service(), Options: conform.Options{Verify: webhook.Verify}}
	f.takes("[URL]", func(value string) error { *c.url = value; return nil })
	f.Func("level", "check this `level`: specification, sample or plantstore;\nrepeatable", func(level string) error {
		if !slices.Contains(conform.Levels, level) {
			return errors.New("use " + strings.Join(conform.Levels, ", "))
		}
		c.Levels = append(c.Levels, level)
		return nil
	})
	f.BoolVar(&c.list, "list", false, "print the cases, and run none")
	f.StringVar(&c.junit, "junit", "", "write a report for CI systems to this `file`")
	f.Func("known-failing", "`file` of case numbers, one per line:\nthese cases must fail", c.readKnown)
	f.Func("webhook-listen", "`address` that receives webhooks, such as 127.0.0.1:9000;\n"+
		"the server must be able to reach it", c.listen)
	f.StringVar(&c.again, "restart", "", "shell `command` that restarts the server")
	f.Func("run", "run only cases whose number or title matches this `pattern`", func(text string) (err error) {
		c.Only, err = regexp.Compile(text)
		return err
	})
	return f.runs(c.run)
}

type conformance struct {
	*service
	conform.Options
	list         bool
	junit, again string
}

// listen reads the address of --webhook-listen.
func (c *conformance) listen(address string) (err error) {
	if host, _, _ := net.SplitHostPort(address); host == "" || net.ParseIP(host).IsUnspecified() {
		return errors.New("name a host that the server can reach, such as 127.0.0.1:9000")
	}
	c.Webhooks, err = net.Listen("tcp", address)
	return err
}

func (c *conformance) run(ctx context.Context) error {
	env := c.f.env
	cases := slices.DeleteFunc(conform.Cases(), func(k conform.Case) bool { return !c.Selects(k) })
	switch {
	case len(cases) == 0:
		return usagef("--run matches no case of these levels; see plantstore conform --list")
	case c.list:
		line := func(k conform.Case) string { return k.ID + "\t" + k.Level + "\t" + k.Title }
		return printTable(env, *c.json, cases, nil, "CASE\tLEVEL\tTITLE", line, cases...)
	case *c.token == "":
		return usagef("a token is required: set PLANTSTORE_TOKEN or --token-file; use any text if the server needs none")
	}
	if _, err := client.New(*c.url, *c.token); err != nil {
		return usageError{err}
	}
	c.Token = *c.token
	c.URL, _ = url.Parse(*c.url)
	if err := checkWritable(cmp.Or(c.junit, os.DevNull)); err != nil {
		return usagef("--junit is %q: %w", c.junit, err)
	}
	if c.again != "" {
		c.Restart = c.restart
	}
	if telemetry.IsTerminal(env.stderr) {
		c.Progress = func(done, all int) {
			fmt.Fprintf(env.stderr, "\r%-30s %d of %d ", strings.Repeat("█", 30*done/all), done, all)
		}
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	report, err := conform.Run(ctx, c.Options)
	if c.Progress != nil {
		fmt.Fprint(env.stderr, "\r\033[K") // the bar
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case errors.Is(err, conform.ErrRefused):
		return exitError{6, conform.ErrRefused.Error()}
	case err != nil:
		return err
	}
	junit, err := os.Create(cmp.Or(c.junit, os.DevNull))
	if err != nil {
		return err
	}
	err = cmp.Or(c.print(report), report.JUnit(junit), junit.Close())
	switch {
	case err == nil && report.Counts[conform.Skipped] == len(report.Results):
		err = exitError{1, "every case was skipped"}
	case err == nil && !report.OK():
		err = exitError{code: 1} // the report says why
	}
	return err
}

// checkWritable checks that a file can be written, and leaves it as it is.
func checkWritable(path string) error {
	info, missing := os.Lstat(path)
	if missing == nil && !info.Mode().IsRegular() {
		return nil // such as a pipe, whose reader would see its end
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err == nil && missing != nil {
		os.Remove(path)
	}
	return cmp.Or(err, f.Close())
}

// readKnown reads the numbers in the file of --known-failing.
func (c *conformance) readKnown(path string) error {
	text, err := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		id, _, _ := strings.Cut(line, "#")
		if id = strings.TrimSpace(id); id == "" {
			continue
		}
		if !slices.ContainsFunc(conform.Cases(), func(k conform.Case) bool { return k.ID == id }) {
			return fmt.Errorf("it has the case %q, which does not exist; see plantstore conform --list", id)
		}
		c.Known = append(c.Known, id)
	}
	return err
}

func (c *conformance) restart(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", c.again)
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
		if n := r.Of(level); len(n) > 0 {
			failed := n[conform.Failed] + n[conform.Fixed]
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", level, n[conform.Passed], failed, n[conform.Known], n[conform.Skipped])
		}
	}
	return w.Flush()
}
