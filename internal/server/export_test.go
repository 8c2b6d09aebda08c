package server

// For tests of profiles, and of what metrics and traces cost.
var (
	LimitProfiles   = limitProfiles
	ObserveRequests = observeRequests
	ObserveCommits  = observeCommits
	ObserveWaits    = observeWaits
)
