package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends with the first signal to stop. A second SIGINT or SIGTERM ends the process. A
// second SIGHUP does not, because a terminal that is closed may send it several times.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE) // the service outlives the reader of its log
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // it is ignored under nohup
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // stop then does not restore the default
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
