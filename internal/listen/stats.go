package listen

import "sync/atomic"

// Stats are counts of connections. The maps have all the states and reasons that there are.
type Stats struct {
	Open         map[string]int64 // by what the connection is doing
	Evicted      map[string]int64 // by the reason why the connection made way for others
	Refused      map[string]int64 // by the reason why the connection was not admitted
	Max          int              // connections that may be open
	AcceptErrors int64
}

var stateNames = [...]string{
	idle: "idle", receiving: "receiving", writing: "writing", working: "handling", gone: "closing",
}

var evictionNames = [...]string{
	overShare: "address_share", withoutToken: "no_token", busy: "address_share", dominant: "token_share",
	withToken: "idle_token",
}

// Reasons to refuse a connection.
const (
	allInUse = iota
	hasItsShare
)

var refusalNames = [...]string{allInUse: "limit", hasItsShare: "address_share"}

type counters struct {
	evicted      [len(evictionNames)]atomic.Int64
	refused      [len(refusalNames)]atomic.Int64
	acceptErrors atomic.Int64
}

// Stats returns the current counts. It visits every connection.
func (l *Listener) Stats() Stats {
	var states [len(stateNames)]atomic.Int64
	l.mu.Lock()
	for _, c := range l.conns {
		states[c.state.Load().kind()].Add(1)
	}
	l.mu.Unlock()
	return Stats{
		Open: named(stateNames[:], states[:]), Evicted: named(evictionNames[:], l.counters.evicted[:]),
		Refused: named(refusalNames[:], l.counters.refused[:]), Max: l.cfg.Max,
		AcceptErrors: l.counters.acceptErrors.Load(),
	}
}

func named(names []string, counts []atomic.Int64) map[string]int64 {
	all := map[string]int64{}
	for i, name := range names {
		all[name] += counts[i].Load()
	}
	return all
}
