// Package systemd connects the process to the service manager that has started it. The manager passes sockets, and the
// process reports its state. Without a manager, its functions do nothing.
package systemd

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// Sockets returns the listening sockets that were passed to the process, for the service and for the ops port. A socket
// that was not passed is nil. A passed socket outlives the process: a connection that arrives between two processes
// waits in it and is not refused.
//
// The socket named ops is for the ops port. Without names, the first socket is for the service.
func Sockets() (public, ops net.Listener, err error) {
	for i, file := range activation.Files(true) {
		l, err := net.FileListener(file) // which has a duplicate
		file.Close()
		if err == nil && l.Addr().Network() != "tcp" {
			err = fmt.Errorf("it listens on %s", l.Addr().Network())
		}
		if err != nil {
			return nil, nil, fmt.Errorf("descriptor %d of LISTEN_FDS is not a TCP listener: %w", 3+i, err)
		}
		to := &public
		if file.Name() == "ops" || public != nil && file.Name() != "http" {
			to = &ops
		}
		if *to != nil {
			return nil, nil, fmt.Errorf("LISTEN_FDS has more than one socket for %s: name one http and one ops", file.Name())
		}
		*to = l
	}
	return public, ops, nil
}

// Ready reports that the start is complete. Errors are ignored: there is no manager then, or not any more.
func Ready(status string) { daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS="+status) }

// Stopping reports that the process is going to end.
func Stopping(status string) { daemon.SdNotify(false, daemon.SdNotifyStopping+"\nSTATUS="+status) }

// Watchdog reports that the process is alive, as often as the manager wants to hear it, until ctx ends. It does not
// depend on a request: a restart because of an overload, or of a database that hangs, would make both worse.
func Watchdog(ctx context.Context) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil || within == 0 {
		return
	}
	for ctx.Err() == nil {
		daemon.SdNotify(false, daemon.SdNotifyWatchdog)
		select {
		case <-time.After(within / 4):
		case <-ctx.Done():
		}
	}
}
