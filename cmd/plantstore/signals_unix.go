//go:build unix

package main

import (
	"os"
	"syscall"
)

// userSignals mean what a program wants them to mean.
var userSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
