package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// startGrace is how long a start may take to react to the signal to stop.
const startGrace = 5 * time.Second

// untilSignal returns a context that ends with the first signal to stop. A second one ends the process, except for
// SIGHUP: a terminal that is closed may send it several times.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE) // the service outlives the reader of its log
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup does
		signals = append(signals, syscall.SIGHUP)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // replaces the default, to end the process, for good
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// endHungStart returns what run returns. If ctx ends before started is closed, and run does not return soon after,
// the start hangs, for example in a file system, and endHungStart returns an error without waiting for it.
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
