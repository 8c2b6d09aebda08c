package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"plantstore/client"
	"plantstore/internal/plant"
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
	return clientCommand(env, plantsCreate, "create --id ID --name NAME", `
Create a plant. Creating the same plant again succeeds and stores nothing.`, `
  plantstore plants create --id 1 --name "Monstera deliciosa" --tag climber
  plantstore plants create --id -7 --name Fern --json`)
}

type createOptions struct {
	serviceOptions
	id        *int64
	name, tag *string
}

func (o *createOptions) declare(f *flags) {
	optional(f, &o.id, "id", "`id` of the plant: any 64-bit integer", plant.ParseID)
	f.plant(&o.name, &o.tag)
	o.serviceOptions.declare(f)
}

func plantsCreate(ctx context.Context, c *client.Client, o *createOptions, env environment) error {
	if o.id == nil || o.name == nil {
		return usagef("--id and --name are required")
	}
	p, err := c.Create(ctx, client.NewPlant{ID: *o.id, Plant: client.Plant{Name: *o.name, Tag: o.tag}})
	err = withAdvice(err, "run the same command again, which is safe")
	return o.print(env, client.Stored{NewPlant: client.NewPlant{ID: *o.id, Plant: p}}, err)
}

func plantsGetCommand(env environment) *cobra.Command {
	return clientCommand(env, plantsGet, "get ID", `
Print a plant and its ETag.`, `
  plantstore plants get 1
  plantstore plants get -7 --json`)
}

type getOptions struct {
	serviceOptions
	id int64
}

func (o *getOptions) declare(f *flags) {
	f.takesID(&o.id)
	o.serviceOptions.declare(f)
}

func plantsGet(ctx context.Context, c *client.Client, o *getOptions, env environment) error {
	p, err := c.Get(ctx, o.id)
	return o.print(env, p, err)
}

func plantsListCommand(env environment) *cobra.Command {
	return clientCommand(env, plantsList, "list", `
Print the plants of the store, ordered by id.`, `
  plantstore plants list
  plantstore plants list --tag climber --search monstera
  plantstore plants list --after 100 --limit 20 --json`)
}

type listOptions struct {
	serviceOptions
	client.Page
	limit int
}

func (o *listOptions) declare(f *flags) {
	f.IntVar(&o.limit, "limit", 0, "print at most `n` plants; 0 for all")
	optional(f, &o.After, "after", "print only plants with a higher `id`", plant.ParseID)
	optional(f, &o.Tag, "tag", "print only plants with exactly this `tag`", verbatim)
	f.StringVar(&o.Text, "search", "", "print only plants whose name or tag contains this `text`,\nignoring case")
	o.serviceOptions.declare(f)
}

func plantsList(ctx context.Context, c *client.Client, o *listOptions, env environment) error {
	if o.limit < 0 {
		return usagef("--limit is %d: use 0 or more", o.limit)
	}
	o.Size = listPage
	if o.limit > 0 {
		o.Size = min(o.limit, listPage)
	}
	plants := first(o.limit, c.Plants(ctx, o.Page))
	if o.json {
		return printArray(env.stdout, plants)
	}
	return env.printTable(plants)
}

func plantsReplaceCommand(env environment) *cobra.Command {
	return clientCommand(env, plantsReplace, "replace ID --name NAME", `
Replace the name and tag of a plant. Without --tag the plant has no tag afterwards.`, `
  plantstore plants replace 1 --name "Monstera adansonii"
  plantstore plants replace 1 --name Fern --tag shade --if-match wOJdJiGiZp7nhVH3`)
}

type replaceOptions struct {
	removeOptions
	name, tag *string
}

func (o *replaceOptions) declare(f *flags) {
	f.plant(&o.name, &o.tag)
	o.removeOptions.declare(f)
}

func plantsReplace(ctx context.Context, c *client.Client, o *replaceOptions, env environment) error {
	if o.name == nil {
		return usagef("--name is required")
	}
	p, err := c.Replace(ctx, o.id, client.Plant{Name: *o.name, Tag: o.tag}, o.match)
	return o.print(env, p, withAdvice(err, checkFirst))
}

func plantsRemoveCommand(env environment) *cobra.Command {
	return clientCommand(env, plantsRemove, "remove ID", `
Remove a plant. Nothing is printed, and the id can be used again.`, `
  plantstore plants remove 1
  plantstore plants remove -7 --if-match wOJdJiGiZp7nhVH3`)
}

type removeOptions struct {
	getOptions
	match string
}

// declare adds --if-match. An empty value, such as that of an unset variable in a script, is refused, because the
// change would have no precondition.
func (o *removeOptions) declare(f *flags) {
	o.match = client.Any
	f.Func("if-match", "`ETag` that the plant must still have; * for any", func(tag string) error {
		if strings.TrimSpace(tag) == "" {
			return errors.New("must not be empty; use the ETag that plants get prints, or * for any")
		}
		o.match = quoteETag(tag)
		return nil
	})
	o.getOptions.declare(f)
}

func plantsRemove(ctx context.Context, c *client.Client, o *removeOptions, _ environment) error {
	return withAdvice(c.Remove(ctx, o.id, o.match), checkFirst)
}

const checkFirst = "check with plants get before running it again"

// withAdvice adds what to do to an error with an unknown outcome.
func withAdvice(err error, advice string) error {
	if errors.Is(err, client.ErrUnknown) {
		return fmt.Errorf("%w; %s", err, advice)
	}
	return err
}

// serviceOptions are those of every command that calls a running service.
type serviceOptions struct {
	url, token, tokenFile string
	json                  bool
	options               []client.Option // override the default ones
}

func (o *serviceOptions) declare(f *flags) {
	f.StringVar(&o.url, "url", "http://127.0.0.1:8080", "base `URL` of the service")
	f.StringVar(&o.token, "token", "", "the `token`; other users of the machine can read a command\n"+
		"line, so prefer the variable or --token-file")
	f.StringVar(&o.tokenFile, "token-file", "", "`path` of a file with the token,\ninstead of "+tokenVariable)
	for _, flag := range []string{"url", "token", "token-file"} {
		f.sameVariable(f.Lookup(flag))
	}
	f.BoolVar(&o.json, "json", false, "print JSON, and errors as JSON")
}

const (
	tokenVariable = "PLANTSTORE_TOKEN"
	firstPause    = 100 * time.Millisecond // before the first retry
)

func (o *serviceOptions) open(env environment) (*client.Client, error) {
	credential := o.token
	if credential == "" || credential == env.getenv(tokenVariable) { // it was not set on the command line
		var err error
		if credential, _, err = env.secret(tokenVariable, o.tokenFile); err != nil {
			return nil, err
		}
	}
	if credential == "" {
		return nil, usagef("a token is required: set PLANTSTORE_TOKEN or --token-file")
	}
	c, err := client.New(o.url, credential, append([]client.Option{client.WithRetries(3, firstPause)}, o.options...)...)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// clientCommand returns a command that calls run with a client of a running service and the values of its flags.
func clientCommand[O any, P interface {
	*O
	declare(*flags)
	open(environment) (*client.Client, error)
}](
	env environment, run func(context.Context, *client.Client, P, environment) error, use, description, examples string,
) *cobra.Command {
	call := func(ctx context.Context, o P, env environment) error {
		c, err := o.open(env)
		if err != nil {
			return err
		}
		return run(ctx, c, o, env)
	}
	return command(env, call, use, description, examples)
}

// takesID makes the argument of a command an id.
func (f *flags) takesID(to *int64) {
	f.takes("ID", func(text string) (err error) {
		if *to, err = plant.ParseID(text); err != nil {
			return fmt.Errorf("id %q %w", text, err)
		}
		return nil
	})
}

func (f *flags) plant(name, tag **string) {
	optional(f, name, "name", "`name` of the plant", verbatim)
	optional(f, tag, "tag", "`tag` of the plant; an empty tag differs from no tag", verbatim)
}

// quoteETag adds the quotes of an ETag, which a shell removes.
func quoteETag(tag string) string {
	if tag == "*" || strings.Contains(tag, `"`) {
		return tag
	}
	return `"` + tag + `"`
}

// listPage is how many plants a list requests, and keeps in memory, at a time.
const listPage = 1000

// first returns the first n plants, or all if n is 0.
func first(n int, plants iter.Seq2[client.NewPlant, error]) iter.Seq2[client.NewPlant, error] {
	return func(yield func(client.NewPlant, error) bool) {
		remaining := n
		for p, err := range plants {
			if remaining--; !yield(p, err) || remaining == 0 {
				return
			}
		}
	}
}

// print prints a plant unless there was an error.
func (o *serviceOptions) print(env environment, p client.Stored, err error) error {
	if err != nil {
		return err
	}
	if o.json {
		return env.printJSON(p, jsontext.Multiline(false))
	}
	header, cells := "ID\tNAME\tTAG", row(p.NewPlant)
	if p.ETag != "" {
		header, cells = header+"\tETAG", cells+"\t"+cell(strings.Trim(p.ETag, `"`))
	}
	w := newTable(env.stdout)
	fmt.Fprintf(w, "%s\n%s\n", header, cells)
	return w.Flush()
}

// printTable prints plants as they are received. Each page is aligned separately.
func (env environment) printTable(plants iter.Seq2[client.NewPlant, error]) error {
	out := bufio.NewWriter(env.stdout)
	t := newTable(out)
	flush := func() error {
		t.Flush()
		return out.Flush() // also returns an earlier write error
	}
	fmt.Fprintln(t, "ID\tNAME\tTAG")
	n := 0
	for p, err := range plants {
		switch {
		case err != nil && n == 0:
			return err
		case err != nil:
			return errors.Join(flush(), err)
		}
		fmt.Fprintln(t, row(p))
		if n++; n%listPage == 0 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// printArray prints plants as a JSON array as they are received. After an error the array is left incomplete.
func printArray(w io.Writer, plants iter.Seq2[client.NewPlant, error]) error {
	out := bufio.NewWriter(w)
	open, separator := "[", "["
	for p, err := range plants {
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if _, err := out.WriteString(separator + string(escapeJSON(text))); err != nil {
			return err
		}
		open, separator = "", ",\n"
	}
	out.WriteString(open + "]\n")
	return out.Flush()
}

func row(p client.NewPlant) string {
	cells := strconv.FormatInt(p.ID, 10) + "\t" + cell(p.Name) + "\t"
	if p.Tag != nil {
		cells += cell(*p.Tag)
	}
	return cells
}
