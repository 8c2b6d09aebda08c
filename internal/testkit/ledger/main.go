// Command ledger is a client for tests that cut the service off. Before it sends a plant it writes to a file what it
// is about to send, and after the response what the response promised; both are synced before it continues. It is
// a process of its own, its file is on a disk that is not cut off, and it shares no code with the service, so that
// they cannot share a defect.
//
//	ledger drive --url URL[,URL…] --ledger FILE   create plants until the service is gone, or SIGTERM
//	ledger verify --url URL --ledger FILE         compare what is stored with the ledger, and repeat unknown attempts
//
// PLANTSTORE_TOKEN is the token. verify prints a report as JSON and exits with 1 if the service has broken a promise.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv("PLANTSTORE_TOKEN"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, token string, out io.Writer) error {
	f := flag.NewFlagSet("ledger", flag.ContinueOnError)
	f.SetOutput(io.Discard) // The error is returned.
	urls := f.String("url", "", "`address` of the service, or several with commas between them")
	path := f.String("ledger", "", "`path` of the ledger, which is created if it does not exist")
	clients := f.Int("clients", 32, "number of concurrent clients")
	edits := f.Bool("edits", false, "replace and remove plants too")
	if len(args) == 0 {
		return errors.New("the command is required: drive or verify")
	}
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	l, err := open(*path)
	if err != nil {
		return err
	}
	var all []*service
	for url := range strings.SplitSeq(*urls, ",") {
		all = append(all, newService(url, token))
	}
	switch args[0] {
	case "drive":
		err = drive(ctx, all, l, *clients, *edits)
	case "verify":
		err = printReport(all[0], l, out)
	default:
		err = fmt.Errorf("command %q is unknown: use drive or verify", args[0])
	}
	return errors.Join(err, l.close())
}

func printReport(s *service, l *ledger, out io.Writer) error {
	r, err := verify(s, l, retryTime)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return err
	}
	if n := len(r.Violations); n > 0 {
		return fmt.Errorf("%d violations, the first: %s", n, r.Violations[0])
	}
	return nil
}
