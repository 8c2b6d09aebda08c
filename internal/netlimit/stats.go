package netlimit

import "sync/atomic"

// Stats are counts of connections. The maps have all the states and reasons that there are.
type Stats struct {
	Open         map[string]int64 // by what the connection is doing
	Evicted      map[string]int64 // by the reason why the connection was closed in favour of others
	Refused      map[string]int64 // by the reason why the connection was not admitted
	Max          int              // connections that may be open
	AcceptErrors int64
}

var stateNames = [...]string{
	fresh: "new", idle: "idle", receiving: "receiving", parsed: "handling", handling: "handling",
	receivingBody: "receiving", writing: "writing", evicted: "closing",
}

// Reasons to close a connection besides the ranks of candidates.
const (
	afterResponse = withToken + 1 // it had its response in an overload, and the client has presented no token
)

var evictionNames = [...]string{
	overShare: "address_share", anonymous: "no_token", busy: "address_share", dominant: "token_share",
	withToken: "idle_token", afterResponse: "no_token_after_response",
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
	for _, c := range l.open() {
		states[c.phase()].Add(1)
	}
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
