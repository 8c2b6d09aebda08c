package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// untilSignal returns a context that ends with the first signal to stop. A second SIGINT or SIGTERM ends the process. A
// second SIGHUP does not, because a terminal that is closed may send it several times.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE) // the service outlives the reader of its log
	signals := stopSignals()
	if slices.Contains(signals, os.Signal(syscall.SIGHUP)) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // stop then does not restore the default
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// stopSignals returns the signals that ask the process to stop.
func stopSignals() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) { // it is ignored under nohup
		return []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	}
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
}
