package postgres

import (
	"errors"
	"maps"
	"testing"
)

func TestCountNodes(t *testing.T) {
	safe := settings{"on", "on", "on", "UTF8"}
	nodes := []node{
		{host: "a", settings: safe}, {host: "b", settings: safe}, {host: "c", reason: "connection refused"},
		{host: "d", settings: settings{"off", "on", "on", "UTF8"}},
	}
	m := new(nodeMonitor)
	for _, step := range []struct {
		nodes []node
		err   error
		want  map[string]int64
	}{
		{nodes, nil, map[string]int64{"ok": 2, "down": 1, "unsafe": 1, "unknown": 0}},
		{nil, errors.New("the coordinator is down"), map[string]int64{"ok": 0, "down": 0, "unsafe": 0, "unknown": 4}},
		{nil, errors.New("the coordinator is down"), map[string]int64{"ok": 0, "down": 0, "unsafe": 0, "unknown": 4}},
		{nodes[:2], nil, map[string]int64{"ok": 2, "down": 0, "unsafe": 0, "unknown": 0}},
	} {
		if m.count(step.nodes, step.err); !maps.Equal(m.states(), step.want) {
			t.Errorf("states() = %v, want %v", m.states(), step.want)
		}
	}
	if states := (*nodeMonitor)(nil).states(); states != nil {
		t.Errorf("states() without a cluster = %v", states)
	}
}
