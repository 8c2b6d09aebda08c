package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"

	"plantstore/client"
	"plantstore/internal/plant"
	"plantstore/internal/plantfile"
	"plantstore/internal/telemetry"
)

func plantsExportCommand(env environment) *cobra.Command {
	f := env.command("export", `
Write all plants, ordered by id, in a format that import reads. Plants that are created or changed
meanwhile may be missing or have their old content. A spreadsheet may run names and tags in a CSV
file as formulas.`, `
  plantstore plants export
  plantstore plants export --format csv --to plants.csv`)
	format := f.String("format", "ndjson", "`format`: ndjson or csv")
	to := f.String("to", "", "`path` of a new file to write (default: standard output)")
	s := f.service()
	f.Lookup("json").Usage = "print errors as JSON; --format is the format of the plants"
	return s.calls(func(ctx context.Context, c *client.Client) error {
		formats := plantfile.Formats()
		i := slices.IndexFunc(formats, func(f plantfile.Format) bool { return f.Name == *format })
		if i < 0 {
			return usagef("--format is %q: use ndjson or csv", *format)
		}
		if *to == "" {
			return export(ctx, c, formats[i], env.stdout, new(atomic.Int64))
		}
		return env.exportFile(ctx, c, formats[i], *to)
	})
}

// exportFile writes all plants to a new file, which is removed if that fails.
func (env environment) exportFile(ctx context.Context, c *client.Client, format plantfile.Format, to string) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	var written atomic.Int64
	hide := env.showProgress("plants exported", &written)
	err = errors.Join(export(ctx, c, format, f, &written), f.Sync(), f.Close())
	hide()
	if err != nil {
		os.Remove(to)
		return fmt.Errorf("%s was not written: %w", to, cmp.Or(context.Cause(ctx), err))
	}
	fmt.Fprintf(env.stderr, "plants in %s: %d\n", to, written.Load())
	return nil
}

func export(ctx context.Context, c *client.Client, f plantfile.Format, to io.Writer, written *atomic.Int64) error {
	w := bufio.NewWriterSize(to, 64<<10)
	w.WriteString(f.Header)
	var line []byte
	for p, err := range c.Plants(ctx, client.Page{Size: listPage}) {
		if err != nil {
			return err
		}
		line = f.Append(line[:0], plant.Plant{ID: p.ID, Content: plant.Content(p.Plant)})
		if f.Name != "csv" { // which has no escapes
			line = telemetry.EscapeJSON(line)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		written.Add(1)
	}
	return w.Flush()
}
