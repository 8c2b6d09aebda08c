package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"plantstore/internal/telemetry"
)

const clearLine = "\r\x1b[K" // on a terminal

// showProgress writes how much is done to standard error until the returned function is called: on a terminal in one
// line that changes, and elsewhere in a line every ten seconds.
func (env environment) showProgress(what string, done *atomic.Int64) (hide func()) {
	interval, before, after := 10*time.Second, "", "\n"
	if telemetry.IsTerminal(env.stderr) {
		interval, before, after = 200*time.Millisecond, clearLine, ""
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		start, tick := time.Now(), time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				n := done.Load()
				rate := float64(n) / time.Since(start).Seconds()
				fmt.Fprintf(env.stderr, "%s%s: %d, %.0f/s%s", before, what, n, rate, after)
			case <-stop:
				fmt.Fprint(env.stderr, before)
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// printAbove prints a line to standard error, on a terminal in place of the progress, which is shown below it again.
func (env environment) printAbove(text string) {
	if telemetry.IsTerminal(env.stderr) {
		text = clearLine + text
	}
	fmt.Fprint(env.stderr, text+"\n")
}
