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
)

func plantsExportCommand(env environment) *cobra.Command {
	return clientCommand(env, plantsExport, "export", `
Write all plants, ordered by id, in a format that import reads. Plants that are created or changed
meanwhile may be missing or have their old content. A spreadsheet may run names and tags in a CSV
file as formulas.`, `
  plantstore plants export
  plantstore plants export --format csv --to plants.csv`)
}

type exportOptions struct {
	serviceOptions
	format, to string
	written    atomic.Int64
}

func (o *exportOptions) declare(f *flags) {
	f.StringVar(&o.format, "format", "ndjson", "`format`: ndjson or csv")
	f.values("format", "ndjson", "csv")
	f.StringVar(&o.to, "to", "", "`path` of a new file to write (default: standard output)")
	o.serviceOptions.declare(f)
	f.Lookup("json").Usage = "print errors as JSON; --format is the format of the plants"
}

func plantsExport(ctx context.Context, c *client.Client, o *exportOptions, env environment) (err error) {
	formats := plantfile.Formats()
	i := slices.IndexFunc(formats, func(f plantfile.Format) bool { return f.Name == o.format })
	if i < 0 {
		return usagef("--format is %q: use ndjson or csv", o.format)
	}
	if o.to == "" {
		return o.export(ctx, c, formats[i], env.stdout)
	}
	f, err := os.OpenFile(o.to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	hide := env.showProgress("plants exported", &o.written)
	err = errors.Join(o.export(ctx, c, formats[i], f), f.Sync(), f.Close())
	hide()
	if err != nil {
		os.Remove(o.to)
		return fmt.Errorf("%s was not written: %w", o.to, cmp.Or(context.Cause(ctx), err))
	}
	fmt.Fprintf(env.stderr, "plants in %s: %d\n", o.to, o.written.Load())
	return nil
}

// export writes all plants.
func (o *exportOptions) export(ctx context.Context, c *client.Client, f plantfile.Format, to io.Writer) error {
	w := bufio.NewWriterSize(to, 64<<10)
	w.WriteString(f.Header)
	var line []byte
	for p, err := range c.Plants(ctx, client.Page{Size: listPage}) {
		if err != nil {
			return err
		}
		line = f.Append(line[:0], plant.New{ID: p.ID, Plant: plant.Plant(p.Plant)})
		if f.Name != "csv" { // which has no escapes
			line = escapeJSON(line)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		o.written.Add(1)
	}
	return w.Flush()
}
