package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"plantstore/client"
	"plantstore/internal/plant"
	"plantstore/internal/telemetry"
)

func plantsCommands(env environment) *cobra.Command {
	return group("plants", `
Create, read and change plants in a running service. Set the service with --url, and the token with
PLANTSTORE_TOKEN or --token-file.`, `
  plantstore plants create --id 1 --name "Monstera deliciosa" --tag climber
  plantstore plants list --json`,
		plantsCreateCommand(env), plantsGetCommand(env), plantsListCommand(env), plantsReplaceCommand(env),
		plantsRemoveCommand(env), plantsImportCommand(env), plantsExportCommand(env))
}

func plantsCreateCommand(env environment) *cobra.Command {
	f := env.command("create --id ID --name NAME", `
Create a plant. Creating the same plant again succeeds and stores nothing.`, `
  plantstore plants create --id 1 --name "Monstera deliciosa" --tag climber
  plantstore plants create --id -7 --name Fern --json`)
	id := optional(f, "id", "`id` of the plant: any 64-bit integer", plant.ParseID)
	name, tag := f.plant()
	s := f.service()
	return s.calls(func(ctx context.Context, c *client.Client) error {
		if *id == nil || *name == nil {
			return usagef("--id and --name are required")
		}
		p, err := c.Create(ctx, client.NewPlant{ID: **id, Plant: client.Plant{Name: **name, Tag: *tag}})
		err = withAdvice(err, "run the same command again, which is safe")
		return s.print(client.Stored{NewPlant: client.NewPlant{ID: **id, Plant: p}}, err)
	})
}

func plantsGetCommand(env environment) *cobra.Command {
	f := env.command("get ID", `
Print a plant and its ETag.`, `
  plantstore plants get 1
  plantstore plants get -7 --json`)
	ids, s := f.takesIDs("ID"), f.service()
	return s.calls(func(ctx context.Context, c *client.Client) error {
		p, err := c.Get(ctx, (*ids)[0])
		return s.print(p, err)
	})
}

func plantsListCommand(env environment) *cobra.Command {
	f := env.command("list", `
Print the plants of the store, ordered by id.`, `
  plantstore plants list
  plantstore plants list --tag climber --search monstera
  plantstore plants list --after 100 --limit 20 --json`)
	limit := f.Int("limit", 0, "print at most `n` plants; 0 for all")
	after := optional(f, "after", "print only plants with a higher `id`", plant.ParseID)
	tag := optional(f, "tag", "print only plants with exactly this `tag`", verbatim)
	text := f.String("search", "", "print only plants whose name or tag contains this `text`,\nignoring case")
	s := f.service()
	return s.calls(func(ctx context.Context, c *client.Client) error {
		if *limit < 0 {
			return usagef("--limit is %d: use 0 or more", *limit)
		}
		page := client.Page{After: *after, Tag: *tag, Text: *text, Size: listPage}
		if *limit > 0 {
			page.Size = min(*limit, listPage)
		}
		return s.printList(c.Plants(ctx, page), *limit)
	})
}

func plantsReplaceCommand(env environment) *cobra.Command {
	f := env.command("replace ID --name NAME", `
Replace the name and tag of a plant. Without --tag the plant has no tag afterwards.`, `
  plantstore plants replace 1 --name "Monstera adansonii"
  plantstore plants replace 1 --name Fern --tag shade --if-match wOJdJiGiZp7nhVH3`)
	ids, match, s := f.takesIDs("ID"), f.ifMatch(), f.service()
	name, tag := f.plant()
	return s.calls(func(ctx context.Context, c *client.Client) error {
		if *name == nil {
			return usagef("--name is required")
		}
		p, err := c.Replace(ctx, (*ids)[0], client.Plant{Name: **name, Tag: *tag}, *match)
		return s.print(p, withAdvice(err, checkFirst))
	})
}

func plantsRemoveCommand(env environment) *cobra.Command {
	f := env.command("remove ID...", `
Remove plants. Nothing is printed, and the ids can be used again. If some do not exist, the others
are still removed.`, `
  plantstore plants remove 1 2 -7
  plantstore plants remove 1 --if-match wOJdJiGiZp7nhVH3`)
	ids, match, s := f.takesIDs("ID..."), f.ifMatch(), f.service()
	return s.calls(func(ctx context.Context, c *client.Client) error {
		if len(*ids) > 1 && *match != client.Any {
			return usagef("--if-match is the ETag of one plant: use one id")
		}
		var absent error
		for _, id := range *ids {
			err := withAdvice(c.Remove(ctx, id, *match), checkFirst)
			if err != nil && len(*ids) > 1 && exitCode(err) != notFound {
				return fmt.Errorf("%w; stopped at id %d", err, id)
			}
			absent = errors.Join(absent, err)
		}
		return absent
	})
}

// ifMatch adds --if-match. An empty value, such as that of an unset variable in a script, is refused, because the
// change would have no precondition.
func (f *flags) ifMatch() *string {
	match := client.Any
	f.Func("if-match", "`ETag` that the plant must still have; * for any", func(tag string) error {
		if strings.TrimSpace(tag) == "" {
			return errors.New("must not be empty; use the ETag that plants get prints, or * for any")
		}
		if match = tag; tag != client.Any && !strings.Contains(tag, `"`) {
			match = `"` + tag + `"` // a shell removes the quotes
		}
		return nil
	})
	return &match
}

// takesIDs makes the argument of a command an id, or several: see takes.
func (f *flags) takesIDs(name string) *[]int64 {
	ids := new([]int64)
	f.takes(name, func(text string) error {
		id, err := plant.ParseID(text)
		if err != nil {
			return fmt.Errorf("id %q %w", text, err)
		}
		*ids = append(*ids, id)
		return nil
	})
	return ids
}

func (f *flags) plant() (name, tag **string) {
	return optional(f, "name", "`name` of the plant", verbatim),
		optional(f, "tag", "`tag` of the plant; an empty tag differs from no tag", verbatim)
}

const checkFirst = "check with plants get before running it again"

// withAdvice adds what to do to an error with an unknown outcome.
func withAdvice(err error, advice string) error {
	if errors.Is(err, client.ErrUnknown) {
		return fmt.Errorf("%w; %s", err, advice)
	}
	return err
}

const (
	tokenVariable         = "PLANTSTORE_TOKEN"
	webhookSecretVariable = "PLANTSTORE_WEBHOOK_SECRET"
	firstPause            = 100 * time.Millisecond // before the first retry
)

// service is the running service that a command calls.
type service struct {
	f          *flags
	url, token *string
	json       *bool
	options    []client.Option

	mu      sync.Mutex
	waiting time.Time // when the last wait that was announced ends
}

// service adds the flags of every command that calls a running service. The options override the default ones.
func (f *flags) service(options ...client.Option) *service {
	s := &service{
		f: f, json: f.json(), url: f.String("url", "http://127.0.0.1:8080", "base `URL` of the service"),
		token: f.String("token", "", "the `token`; other users of the machine can read a command\n"+
			"line, so prefer the variable or --token-file"),
	}
	s.options = append([]client.Option{client.WithRetries(3, firstPause), client.OnWait(s.announceWait)}, options...)
	f.Func("token-file", "`path` of a file with the token,\ninstead of "+tokenVariable, func(path string) error {
		secret, err := readSecret(path)
		if err != nil || f.Changed("token") && *s.token != "" {
			return err
		}
		return f.Set("token", secret)
	})
	for _, flag := range []string{"url", "token", "token-file"} {
		f.sameVariable(f.Lookup(flag))
	}
	return s
}

// calls returns the command, which calls run with a client of the service.
func (s *service) calls(run func(context.Context, *client.Client) error) *cobra.Command {
	return s.f.runs(func(ctx context.Context) error {
		if *s.token == "" {
			return usagef("a token is required: set PLANTSTORE_TOKEN or --token-file")
		}
		c, err := client.New(*s.url, *s.token, s.options...)
		if err != nil {
			return usageError{err}
		}
		return run(ctx, c)
	})
}

// announceWait writes to standard error that a call waits for a rate limit, unless a wait that was announced has not
// ended. With --json, only errors are written there.
func (s *service) announceWait(failed error, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := errors.AsType[*client.Error](failed)
	if now := time.Now(); ok && e.Status == http.StatusTooManyRequests && !*s.json && now.After(s.waiting) {
		s.waiting = now.Add(wait)
		fmt.Fprintf(s.f.env.stderr, "Over the rate limit: waiting %.0f s.\n", max(1, wait.Seconds()))
	}
}

// listPage is how many plants a list requests, and keeps in memory, at a time.
const listPage = 1000

func (s *service) print(p client.Stored, err error) error {
	if err != nil {
		return err
	}
	if *s.json {
		return s.f.env.printJSON(p, jsontext.Multiline(false))
	}
	header, cells := "ID\tNAME\tTAG", row(p.NewPlant)
	if p.ETag != "" {
		header, cells = header+"\tETAG", cells+"\t"+cell(strings.Trim(p.ETag, `"`))
	}
	w := newTable(s.f.env.stdout)
	fmt.Fprintf(w, "%s\n%s\n", header, cells)
	return w.Flush()
}

// printList prints plants as they are received, up to a limit unless that is 0: as a JSON array, which is left
// incomplete after an error, or as a table, in which each page is aligned separately.
func (s *service) printList(plants iter.Seq2[client.NewPlant, error], limit int) error {
	out := bufio.NewWriter(s.f.env.stdout)
	w := newTable(out) // does not change JSON, which has no tabs
	flush := func() error {
		w.Flush()
		return out.Flush() // also returns an earlier write error
	}
	before, between, after := "ID\tNAME\tTAG\n", "", ""
	text := func(p client.NewPlant) string { return row(p) + "\n" }
	if *s.json {
		before, between, after = "[", ",\n", "]\n"
		text = func(p client.NewPlant) string {
			text, _ := json.Marshal(p) // a plant that was decoded can be encoded
			return string(telemetry.EscapeJSON(text))
		}
	}
	n := 0
	for p, err := range plants {
		if err != nil {
			return errors.Join(flush(), err)
		}
		fmt.Fprint(w, before, text(p))
		before = between
		if n++; n == limit {
			break
		}
		if n%listPage == 0 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if n > 0 {
		before = ""
	}
	fmt.Fprint(w, before, after)
	return flush()
}

func row(p client.NewPlant) string {
	cells := strconv.FormatInt(p.ID, 10) + "\t" + cell(p.Name) + "\t"
	if p.Tag != nil {
		cells += cell(*p.Tag)
	}
	return cells
}
