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
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"

	"plantstore/client"
	"plantstore/internal/plant"
	"plantstore/internal/telemetry"
)

func plantsCreate(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "plants create", "--id ID --name NAME [flags]",
		"Creates a plant. Creating the same plant again succeeds and stores nothing.")
	s := f.service()
	id := optional(f, "id", "`id` of the plant: any 64-bit integer", plant.ParseID)
	name, tag := f.plant()
	if _, err := f.parse(f.flagsFirst(args)); err != nil {
		return err
	}
	if *id == nil || *name == nil {
		return f.usageError("--id and --name are required")
	}
	c, err := s.open(f)
	if err != nil {
		return err
	}
	p, err := c.Create(ctx, client.NewPlant{ID: **id, Plant: client.Plant{Name: **name, Tag: *tag}})
	if err != nil {
		return withAdvice(err, "running the same command again is safe and settles it")
	}
	return s.print(env, client.Stored{NewPlant: client.NewPlant{ID: **id, Plant: p}})
}

func plantsGet(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "plants get", "[flags] ID", "Prints a plant and its ETag.")
	s := f.service()
	c, id, err := s.openWithID(f, args)
	if err != nil {
		return err
	}
	p, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	return s.print(env, p)
}

func plantsList(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "plants list", "[flags]", "Prints the plants of the store, ordered by id.")
	s := f.service()
	limit := f.Int("limit", 0, "print at most `n` plants; 0 for all")
	after := optional(f, "after", "print only plants with a higher `id`", plant.ParseID)
	if _, err := f.parse(f.flagsFirst(args)); err != nil {
		return err
	}
	if *limit < 0 {
		return f.usageError("--limit is %d: use 0 or more", *limit)
	}
	c, err := s.open(f)
	if err != nil {
		return err
	}
	page := client.Page{Size: listPage, After: *after}
	if *limit > 0 {
		page.Size = min(*limit, listPage)
	}
	plants := first(*limit, c.Plants(ctx, page))
	if *s.json {
		return printArray(env.stdout, plants)
	}
	return printTable(env.stdout, plants)
}

func plantsReplace(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "plants replace", "[flags] ID --name NAME",
		"Replaces the name and tag of an existing plant. Without --tag the plant has no tag afterwards.")
	s := f.service()
	name, tag := f.plant()
	match := f.ifMatch()
	c, id, err := s.openWithID(f, args)
	if err != nil {
		return err
	}
	if *name == nil {
		return f.usageError("--name is required")
	}
	p, err := c.Replace(ctx, id, client.Plant{Name: **name, Tag: *tag}, *match)
	if err != nil {
		return withAdvice(err, checkFirst)
	}
	return s.print(env, p)
}

func plantsRemove(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "plants remove", "[flags] ID", "Removes a plant and prints nothing. Its id can be created again.")
	s := f.service()
	match := f.ifMatch()
	c, id, err := s.openWithID(f, args)
	if err != nil {
		return err
	}
	return withAdvice(c.Remove(ctx, id, *match), checkFirst)
}

const checkFirst = "check with plants get before running it again"

// withAdvice adds what to do to an error with an unknown outcome.
func withAdvice(err error, advice string) error {
	if errors.Is(err, client.ErrUnknown) {
		return fmt.Errorf("%w; %s", err, advice)
	}
	return err
}

// service holds the flags of every command that calls a running service.
type service struct {
	url, token, tokenFile *string
	json                  *bool
}

func (f *flags) service() service {
	return service{
		f.String("url", "http://127.0.0.1:8080", "base `URL` of the service"),
		f.String("token", "", "the `token`; other users of the machine can read a command line, "+
			"so prefer the variable or --token-file"),
		f.String("token-file", "", "`path` of a file with the token, instead of PLANTSTORE_TOKEN"),
		f.Bool("json", false, "print JSON"),
	}
}

func (s service) open(f *flags) (*client.Client, error) {
	credential := *s.token
	variable := f.variable("token")
	if credential == "" || credential == f.env.getenv(variable) { // it was not set on the command line
		var err error
		if credential, _, err = f.secret(variable, *s.tokenFile); err != nil {
			return nil, err
		}
	}
	if credential == "" {
		return nil, f.usageError("a token is required: set PLANTSTORE_TOKEN or --token-file")
	}
	c, err := client.New(*s.url, credential, client.WithRetries(3, 100*time.Millisecond))
	if err != nil {
		return nil, f.usageError("%v", err)
	}
	return c, nil
}

// openWithID is open for a command with one argument, an id.
func (s service) openWithID(f *flags, args []string) (*client.Client, int64, error) {
	rest, err := f.parse(f.flagsFirst(args), "ID")
	if err != nil {
		return nil, 0, err
	}
	id, err := plant.ParseID(rest[0])
	if err != nil {
		return nil, 0, f.usageError("id %q %v", rest[0], err)
	}
	c, err := s.open(f)
	return c, id, err
}

func (f *flags) plant() (name, tag **string) {
	text := func(s string) (string, error) { return s, nil }
	return optional(f, "name", "`name` of the plant", text),
		optional(f, "tag", "`tag` of the plant; an empty tag differs from no tag", text)
}

// ifMatch adds the flag --if-match. Its default is client.Any. An empty value, such as that of an unset variable in a
// script, is refused, because the change would have no precondition.
func (f *flags) ifMatch() *string {
	match := client.Any
	f.Func("if-match", "`ETag` that the plant must still have; * for any", func(tag string) error {
		if strings.TrimSpace(tag) == "" {
			return errors.New("must not be empty; use the ETag that plants get prints, or * for any")
		}
		match = quoteETag(tag)
		return nil
	})
	return &match
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

func (s service) print(env environment, p client.Stored) error {
	if *s.json {
		if err := json.MarshalWrite(env.stdout, p); err != nil {
			return err
		}
		_, err := fmt.Fprintln(env.stdout)
		return err
	}
	header, cells := "ID\tNAME\tTAG", row(p.NewPlant)
	if p.ETag != "" {
		header, cells = header+"\tETAG", cells+"\t"+cell(strings.Trim(p.ETag, `"`))
	}
	w := table(env.stdout)
	fmt.Fprintf(w, "%s\n%s\n", header, cells)
	return w.Flush()
}

// printTable prints plants as they are received. Each page is aligned separately.
func printTable(w io.Writer, plants iter.Seq2[client.NewPlant, error]) error {
	out := bufio.NewWriter(w)
	t := table(out)
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
		if _, err := out.WriteString(separator + string(text)); err != nil {
			return err
		}
		open, separator = "", ",\n"
	}
	out.WriteString(open + "]\n")
	return out.Flush()
}

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 4, 2, ' ', 0) }

func row(p client.NewPlant) string {
	cells := strconv.FormatInt(p.ID, 10) + "\t" + cell(p.Name) + "\t"
	if p.Tag != nil {
		cells += cell(*p.Tag)
	}
	return cells
}

// cell returns text for a table, quoted if it would be misread or interpreted by a terminal.
func cell(text string) string {
	if text == "" || text[0] == '"' || strings.TrimSpace(text) != text || telemetry.Escape(text) != text {
		return strconv.Quote(text)
	}
	return text
}
