//go:build linux

// Command load sends requests to a server and prints a [measure.Report].
//
// By default they are creates. With a method they are reads or edits of plants that are stored already: gets choose
// them at random, edits take one after the other and end with the last. Creates can be mixed in, or run beside them on
// connections of their own.
//
// Each client sends its next request as soon as it has received the response to the last one.
//
// It shares the machine with the server, so it is cheap: one thread, epoll, one request that is
// patched rather than built, a response of which only status, length and the id are read. A client
// of net/http takes more of the processor for a request than the server, so that it would measure
// itself.
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
	address, path, idName, name, token string
	method, target, expect             string // of requests other than creates

	stored       int64 // plants that these requests use
	spread       int64
	clients      int
	creators     int
	createShare  float64
	warm, window time.Duration
	first        int64
	scattered    bool
	pids         []int
}

func main() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1) // hardly anything is allocated after the start
	var o options
	flag.StringVar(&o.address, "address", "", "host and port of the server")
	flag.StringVar(&o.path, "path", "/plants", "path of creates")
	flag.StringVar(&o.idName, "id-name", "id", "JSON member that contains the id")
	flag.StringVar(&o.token, "token", "", "bearer token")
	flag.StringVar(&o.method, "method", "", "GET, PUT or DELETE: read or edit stored plants; default: create")
	flag.StringVar(&o.target, "target", "/plants/{id}",
		"path of these requests; {id}, {below} and {record} stand for the id, the one below it and its last 15 digits")
	flag.StringVar(&o.expect, "expect", "", "text that the responses to these requests must start with or contain early")
	flag.Int64Var(&o.stored, "stored", 0, "plants that are stored: those of the first sequence numbers, ascending")
	flag.Int64Var(&o.spread, "spread", 0, "the stored plants have the ids of SpreadID for so many; 0: ascending ids")
	flag.IntVar(&o.creators, "creators", 0, "more clients, which only create; their times are not measured")
	flag.Float64Var(&o.createShare, "create-share", 0, "share of creates among the requests of the other clients")
	nameBytes := flag.Int("name-bytes", 10, "length of a name")
	flag.IntVar(&o.clients, "clients", 64, "clients, with a connection each")
	flag.DurationVar(&o.warm, "warm", 0, "time before the measured window")
	flag.DurationVar(&o.window, "window", time.Second, "length of the measured window")
	flag.Int64Var(&o.first, "first", 0, "first sequence number of creates and edits")
	flag.BoolVar(&o.scattered, "scattered", false, "send ids in random order")
	pids := flag.String("pids", "", "processes to measure, separated by commas")
	flag.Parse()
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
