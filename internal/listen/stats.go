package listen

import "maps"

// Stats are counts of connections. The maps have all the states and reasons that there are.
type Stats struct {
	Open         map[string]int64 // by what the connection is doing
	Evicted      map[string]int64 // by the reason why the connection was evicted
	Refused      map[string]int64 // by the reason why the connection was not admitted
	AcceptErrors int64
}

var stateNames = [...]string{
	idle: "idle", receiving: "receiving", writing: "writing", working: "handling", gone: "closing",
}

var evictionNames = [...]string{
	overShare: "address_share", withoutToken: "no_token", busy: "address_share", dominant: "token_share",
	withToken: "idle_token",
}

func newStats() Stats {
	s := Stats{Evicted: map[string]int64{}, Refused: map[string]int64{"limit": 0, "address_share": 0}}
	for _, name := range evictionNames {
		s.Evicted[name] = 0
	}
	return s
}

// Stats returns the current counts. It visits every connection.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Open, s.Evicted, s.Refused = map[string]int64{}, maps.Clone(s.Evicted), maps.Clone(s.Refused)
	for _, name := range stateNames {
		s.Open[name] = 0
	}
	for _, c := range l.conns {
		s.Open[stateNames[c.state.Load().kind()]]++
	}
	return s
}
