// Command load drives a server with creates over keep-alive connections, one request under way on
// each, and prints a report.
//
// It shares the machine with the server, so it is cheap: one thread, epoll, a request that is
// patched rather than built, an answer of which only status and length are read.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"plantstore/bench/measure"
)

type options struct {
	address, path, idName, name string
	token                       string
	conns                       int
	warm, window                time.Duration
	first                       int64
	scattered                   bool
	pids                        []int
}

func main() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1) // nothing is allocated once it runs
	var o options
	flag.StringVar(&o.address, "address", "", "host and port of the server")
	flag.StringVar(&o.path, "path", "/plants", "where to POST")
	flag.StringVar(&o.idName, "id-name", "id", "the member that holds the id")
	nameBytes := flag.Int("name-bytes", 10, "length of a name")
	flag.IntVar(&o.conns, "conns", 64, "connections")
	flag.DurationVar(&o.warm, "warm", 500*time.Millisecond, "time before the measured window")
	flag.DurationVar(&o.window, "window", 3*time.Second, "the measured window")
	flag.Int64Var(&o.first, "first", 0, "first sequence number")
	flag.BoolVar(&o.scattered, "scattered", false, "ids in no order")
	pids := flag.String("pids", "", "processes to measure, separated by commas")
	flag.Parse()
	o.token = os.Getenv("BENCH_TOKEN")
	o.name = measure.Name(*nameBytes)
	for text := range strings.SplitSeq(*pids, ",") {
		if pid, err := strconv.Atoi(text); err == nil {
			o.pids = append(o.pids, pid)
		}
	}
	report, err := run(o)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
