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
)

func plantsCreate(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "plants create", "--id ID --name NAME [flags]", "Creates a plant. The same plant again is no error and stores nothing.")
	s := f.service()
	id := optional(f, "id", "`id` of the plant: any integer that an int64 holds", parseID)
	name, tag := f.plant()
	if _, err := f.parse(f.arrange(args)); err != nil {
		return err
	}
	if *id == nil || *name == nil {
		return f.wrong("expected --id and --name")
	}
	c, err := s.open(f)
	if err != nil {
		return err
	}
	p, err := c.Create(ctx, client.NewPlant{ID: **id, Plant: client.Plant{Name: **name, Tag: *tag}})
	if err != nil {
		return advise(err, "run the same command again: that is safe, and tells")
	}
	return s.print(env, client.Stored{NewPlant: client.NewPlant{ID: **id, Plant: p}})
}

func plantsGet(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "plants get", "[flags] ID", "Prints a plant and its ETag.")
	s := f.service()
	c, id, err := s.openFor(f, args)
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
	f := newFlags(env, "plants list", "[flags]", "Prints the plants of the store in the order of their ids.")
	s := f.service()
	limit := f.Int("limit", 0, "print `n` plants at most; 0 prints all")
	after := optional(f, "after", "print only plants above this `id`", parseID)
	if _, err := f.parse(f.arrange(args)); err != nil {
		return err
	}
	if *limit < 0 {
		return f.wrong("--limit is %d: expected 0 or more", *limit)
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
	f := newFlags(env, "plants replace", "[flags] ID --name NAME", "Gives a plant that is there another name and tag; without --tag it has none afterwards.")
	s := f.service()
	name, tag := f.plant()
	match := f.ifMatch()
	c, id, err := s.openFor(f, args)
	if err != nil {
		return err
	}
	if *name == nil {
		return f.wrong("expected --name")
	}
	p, err := c.Replace(ctx, id, client.Plant{Name: **name, Tag: *tag}, quoteETag(*match))
	if err != nil {
		return advise(err, seeFirst)
	}
	return s.print(env, p)
}

func plantsRemove(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "plants remove", "[flags] ID", "Removes a plant and prints nothing. Its id can be created again.")
	s := f.service()
	match := f.ifMatch()
	c, id, err := s.openFor(f, args)
	if err != nil {
		return err
	}
	return advise(c.Remove(ctx, id, quoteETag(*match)), seeFirst)
}

const seeFirst = "look with plants get before you run it again"

// advise says what to do where it is not known whether a change was made.
func advise(err error, what string) error {
	if errors.Is(err, client.ErrUnknown) {
		return fmt.Errorf("%w; %s", err, what)
	}
	return err
}

// service is how a command reaches a running service, and how it prints what it hears.
type service struct {
	url, token, tokenFile *string
	json                  *bool
}

func (f *flags) service() service {
	return service{
		f.String("url", "http://127.0.0.1:8080", "`address` of the service"),
		f.String("token", "", "the `token`; other users of the machine can read a command line, so better set the variable or --token-file"),
		f.String("token-file", "", "`path` of a file with the token, in place of PLANTSTORE_TOKEN"),
		f.Bool("json", false, "print JSON"),
	}
}

func (s service) open(f *flags) (*client.Client, error) {
	credential := *s.token
	if variable := envName("token"); credential == "" || credential == f.env.getenv(variable) { // not from the command line
		var err error
		if credential, err = f.secret(variable, *s.tokenFile); err != nil {
			return nil, err
		}
	}
	if credential == "" {
		return nil, f.wrong("expected a token in PLANTSTORE_TOKEN, --token-file or --token")
	}
	c, err := client.New(*s.url, credential, client.WithRetries(3, 100*time.Millisecond))
	if err != nil {
		return nil, f.wrong("%v", err)
	}
	return c, nil
}

// openFor also reads the one argument, an id.
func (s service) openFor(f *flags, args []string) (*client.Client, int64, error) {
	rest, err := f.parse(f.arrange(args), "ID")
	if err != nil {
		return nil, 0, err
	}
	id, err := parseID(rest[0])
	if err != nil {
		return nil, 0, f.wrong("the id is %q: %v", rest[0], err)
	}
	c, err := s.open(f)
	return c, id, err
}

func (f *flags) plant() (name, tag **string) {
	text := func(s string) (string, error) { return s, nil }
	return optional(f, "name", "`name` of the plant", text),
		optional(f, "tag", "`tag` of the plant; an empty one is not the same as none", text)
}

func (f *flags) ifMatch() *string {
	return f.String("if-match", "", "the `etag` that the plant must still have; * is any")
}

// quoteETag puts back the quotes that a shell takes away.
func quoteETag(tag string) string {
	if tag == "" || tag == "*" || strings.Contains(tag, `"`) {
		return tag
	}
	return `"` + tag + `"`
}

// listPage is how many plants a list fetches, and holds, at a time.
const listPage = 1000

// first is the first n plants, or all where n is 0.
func first(n int, plants iter.Seq2[client.NewPlant, error]) iter.Seq2[client.NewPlant, error] {
	return func(yield func(client.NewPlant, error) bool) {
		left := n
		for p, err := range plants {
			if left--; !yield(p, err) || left == 0 {
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
	header, line := "ID\tNAME\tTAG", row(p.NewPlant)
	if p.ETag != "" {
		header, line = header+"\tETAG", line+"\t"+legible(strings.Trim(p.ETag, `"`))
	}
	w := table(env.stdout)
	fmt.Fprintf(w, "%s\n%s\n", header, line)
	return w.Flush()
}

// printTable prints plants as they come. Its columns may move from page to page.
func printTable(w io.Writer, plants iter.Seq2[client.NewPlant, error]) error {
	out := bufio.NewWriter(w)
	t := table(out)
	flush := func() error {
		t.Flush()
		return out.Flush() // also what failed before
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

// printArray prints plants as they come. Where they break off, so does the JSON.
func printArray(w io.Writer, plants iter.Seq2[client.NewPlant, error]) error {
	out := bufio.NewWriter(w)
	begin, before := "[", "["
	for p, err := range plants {
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if _, err := out.WriteString(before + string(text)); err != nil {
			return err
		}
		begin, before = "", ",\n"
	}
	out.WriteString(begin + "]\n")
	return out.Flush()
}

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 4, 2, ' ', 0) }

func row(p client.NewPlant) string {
	line := strconv.FormatInt(p.ID, 10) + "\t" + legible(p.Name) + "\t"
	if p.Tag != nil {
		line += legible(*p.Tag)
	}
	return line
}

// legible is a text as a cell of a table. It is quoted where it is not plain to see, and where a
// terminal would obey it.
func legible(text string) string {
	unseen := func(r rune) bool { return !strconv.IsPrint(r) }
	if text == "" || text[0] == '"' || strings.TrimSpace(text) != text || strings.ContainsFunc(text, unseen) {
		return strconv.Quote(text)
	}
	return text
}
