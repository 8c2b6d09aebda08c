package server

var LimitProfiles = limitProfiles
