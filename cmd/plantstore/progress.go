package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// showProgress writes how much is done to standard error every five seconds, until the returned function is called.
func (env environment) showProgress(what string, done *atomic.Int64) (stop func()) {
	start, end, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-time.After(5 * time.Second):
				n := done.Load()
				fmt.Fprintf(env.stderr, "%s: %d, %.0f/s\n", what, n, float64(n)/time.Since(start).Seconds())
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}
