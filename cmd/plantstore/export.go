package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"plantstore/client"
	"plantstore/internal/plant"
	"plantstore/internal/transfer"
)

type exportOptions struct {
	serviceOptions
	format, to string
	written    atomic.Int64
}

func (o *exportOptions) declare(f *flags) {
	f.StringVar(&o.format, "format", "ndjson", "`format`: ndjson, csv or json")
	f.values("format", "ndjson", "csv", "json")
	f.StringVar(&o.to, "to", "", "`path` of a new file to write (default: standard output)")
	o.serviceOptions.declare(f)
	f.Lookup("json").Usage = "print errors as JSON; --format is the format of the plants"
}

func plantsExport(ctx context.Context, c *client.Client, o *exportOptions, env environment) error {
	formats := transfer.Formats()
	i := slices.IndexFunc(formats, func(f transfer.Format) bool { return f.Name == o.format })
	if i < 0 {
		return usagef("--format is %q: use ndjson, csv or json", o.format)
	}
	if o.to == "" {
		return o.export(ctx, c, formats[i], env.stdout)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	hide := env.showBar(func() (transfer.Phase, int64) { return transfer.Phase{Name: "exporting"}, o.written.Load() })
	err := transfer.WriteNew(ctx, o.to, func(w io.Writer) error { return o.export(ctx, c, formats[i], w) })
	hide()
	if err != nil {
		return fmt.Errorf("%s was not written: %w", o.to, cmp.Or(context.Cause(ctx), err))
	}
	fmt.Fprintf(env.stderr, "plants in %s: %d\n", o.to, o.written.Load())
	return nil
}

// export writes all plants. It requests the next page while it writes one.
func (o *exportOptions) export(ctx context.Context, c *client.Client, f transfer.Format, w io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	pages := make(chan []byte, 1)
	go func() {
		defer close(pages)
		page, separator, end := []byte(nil), f.Before, f.Empty
		for p, failed := range c.Plants(ctx, client.Page{Size: listPage}) {
			if failed != nil {
				err = failed
				return
			}
			page = f.Append(append(page, separator...), plant.New{ID: p.ID, Plant: plant.Plant(p.Plant)})
			separator, end = f.Between, f.After
			if o.written.Add(1)%listPage == 0 {
				pages <- page
				page = nil
			}
		}
		pages <- append(page, end...)
	}()
	var writeErr error
	for page := range pages {
		if f.Name != "csv" { // which has no escapes
			page = escapeJSON(page)
		}
		if writeErr == nil {
			if _, writeErr = w.Write(page); writeErr != nil {
				cancel()
			}
		}
	}
	cancel()
	return cmp.Or(writeErr, err)
}
