package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// startGrace is how long a start may continue after the signal to stop.
const startGrace = 5 * time.Second

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

// endHungStart returns what run returns. If ctx ends, and within startGrace run does not return and started is not
// closed, the start hangs, for example in a file system: endHungStart then returns an error and does not wait for run.
func endHungStart(ctx context.Context, started <-chan struct{}, run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-started:
		return <-done
	case <-time.After(startGrace):
		return fmt.Errorf("%w before the service was ready, and the database has not responded for %v",
			context.Cause(ctx), startGrace)
	}
}
