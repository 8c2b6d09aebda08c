package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// FreeAddress is one that nothing listens on, below the ports that the system gives to clients:
// it stays free while the service is down. None is given twice, and the databases of the tests have theirs below these.
func FreeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 22500+rand.IntN(7500))
		if _, given := quiet.LoadOrStore(address, true); given {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

var quiet sync.Map // addresses that were given
