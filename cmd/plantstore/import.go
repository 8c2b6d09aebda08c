package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"plantstore/client"
	"plantstore/internal/plantfile"
)

const (
	maxParallel   = 256 // as many connections as the client keeps open
	importRetries = 10  // for about 20 s, so that an import outlasts a restart of the service
)

func plantsImportCommand(env environment) *cobra.Command {
	f := env.command("import FILE", `
Create the plants of a file. FILE is a path, or - for standard input. The format is recognized by
the content: NDJSON (one JSON object on each line) or CSV (with the columns id, name and,
optionally, tag). In CSV, an empty field is no tag, and "" is an empty tag.

A line that can't be imported is listed on standard error with the reason, the others are imported,
and the exit code is 1. If the token is over its rate, the import waits. After an interruption the
same command continues: plants that are already in the store stay as they are.`, `
  plantstore plants import plants.csv
  plantstore plants import plants.ndjson --on-conflict skip
  plantstore plants import - --url https://plants.example --parallel 16`)
	im := &importer{name: f.takesText("FILE")}
	im.conflict = f.String("on-conflict", "fail",
		"`action` if the id belongs to a plant with a different name or tag:\n"+
			"fail (list the line) or skip (keep the stored plant)")
	im.parallel = f.Int("parallel", 64, fmt.Sprintf("`requests` in flight, at most %d", maxParallel))
	im.service = f.service(client.WithRetries(importRetries, firstPause))
	return im.calls(im.run)
}

type importer struct {
	*service
	name, conflict       *string
	parallel             *int
	create               func(context.Context, client.NewPlant) (client.Plant, error)
	stored, skipped, bad atomic.Int64
}

func (im *importer) run(ctx context.Context, c *client.Client) (err error) {
	switch {
	case *im.conflict != "fail" && *im.conflict != "skip":
		return usagef("--on-conflict is %q: use fail or skip", *im.conflict)
	case *im.parallel < 1 || *im.parallel > maxParallel:
		return usagef("--parallel is %d: use 1 to %d", *im.parallel, maxParallel)
	}
	im.create = c.Create
	file := os.Stdin
	if *im.name != "-" {
		if file, err = os.Open(*im.name); err != nil {
			return err
		}
		defer file.Close()
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	start := time.Now()
	hide := im.f.env.showProgress("plants imported", &im.stored)
	err = plantfile.Each(ctx, plantfile.NewReader(file), *im.parallel, im.one)
	hide()
	if err != nil {
		return fmt.Errorf("%w; run the same command again to continue: plants that are already in the store stay as they are",
			err)
	}
	return im.summarize(time.Since(start).Round(time.Millisecond))
}

// one imports a row. It returns an error if the import must end.
func (im *importer) one(ctx context.Context, row plantfile.Row) error {
	err := row.Err
	for err == nil {
		_, err = im.create(ctx, client.NewPlant{ID: row.Plant.ID, Plant: client.Plant(row.Plant.Content)})
		e, isResponse := errors.AsType[*client.Error](err)
		switch {
		case err == nil:
			im.stored.Add(1)
			return nil
		case !isResponse || ctx.Err() != nil:
			return err
		case e.Number == 40009 && *im.conflict == "skip":
			im.skipped.Add(1)
			return nil
		case e.Status == http.StatusTooManyRequests: // for longer than the client waits
			wait := cmp.Or(e.RetryAfter, time.Second)
			im.announceWait(err, wait)
			select {
			case <-ctx.Done():
			case <-time.After(wait):
				err = nil
			}
		case e.Status != http.StatusBadRequest:
			return err
		}
	}
	im.bad.Add(1)
	text := oneLine(err.Error())
	refused := newJSONError(err, text)
	refused.Line = row.Line
	im.f.env.printError(*im.json, refused, fmt.Sprintf("line %d: %s", row.Line, text))
	return nil
}

func (im *importer) summarize(took time.Duration) (err error) {
	stored, skipped, bad := im.stored.Load(), im.skipped.Load(), im.bad.Load()
	if *im.json {
		err = im.f.env.printJSON(struct {
			Stored  int64   `json:"stored"`
			Skipped int64   `json:"skipped"`
			Failed  int64   `json:"failed"`
			Seconds float64 `json:"seconds"`
		}{stored, skipped, bad, took.Seconds()})
	} else {
		fmt.Fprintf(im.f.env.stderr, "plants of %s: %d in the store, %d skipped, %d not imported; %v\n",
			*im.name, stored, skipped, bad, took)
	}
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("plants of %s that were not imported: %d", *im.name, bad))
	}
	return err
}
