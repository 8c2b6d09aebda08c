// Command ledger is a client that remembers, for tests that cut the service off in the middle. Before
// it sends a plant it writes down what it is about to send, and after the answer what it was told; both
// are on disk before it goes on. It is a process of its own, its file lies where the cut does not reach,
// and it uses nothing of the service, so that they can't share a mistake.
//
//	ledger drive --url URL --ledger FILE    create plants until the service is gone
//	ledger verify --url URL --ledger FILE   compare what is stored with the ledger, and retry what is not known
//
// PLANTSTORE_TOKEN is the token. verify prints a report as JSON, and its exit code is 1 when the service
// has lied.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	f := flag.NewFlagSet("ledger", flag.ExitOnError)
	url := f.String("url", "", "`address` of the service")
	path := f.String("ledger", "", "`path` of the ledger; drive makes it where there is none")
	clients := f.Int("clients", 32, "how many send at once")
	if len(args) == 0 {
		return errors.New("expected drive or verify")
	}
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	b, err := open(*path)
	if err != nil {
		return err
	}
	s := newService(*url, os.Getenv("PLANTSTORE_TOKEN"))
	switch args[0] {
	case "drive":
		err = drive(s, b, *clients)
	case "verify":
		err = report(s, b)
	default:
		err = fmt.Errorf("expected drive or verify, found %q", args[0])
	}
	return errors.Join(err, b.close())
}

func report(s *service, b *book) error {
	r, err := verify(s, b)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	if n := len(r.Lies); n > 0 {
		return fmt.Errorf("%d lies, the first: %s", n, r.Lies[0])
	}
	return nil
}
