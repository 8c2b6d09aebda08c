//go:build !linux

package server

import (
	"net"
	"sync"
	"time"
)

// door leaves connections that there is no room for to the kernel, which keeps them waiting.
type door struct {
	mu   sync.Mutex
	most int
}

const canRefuse = false

func (d *door) answer(*listener, time.Time) int { return 0 }

func silent(net.Conn) bool { return true }

func outOfFiles(error) bool { return false }
