package testkit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Logged is when the log says something, or the zero time where it does not.
func (p *Server) Logged(message string) time.Time {
	for line := range strings.Lines(p.Stderr.String()) {
		var record struct {
			Time time.Time
			Msg  string
		}
		if json.Unmarshal([]byte(line), &record) == nil && record.Msg == message {
			return record.Time
		}
	}
	return time.Time{}
}

// WaitLogged waits for a record with a catalogue number.
func (p *Server) WaitLogged(t *testing.T, number int) {
	t.Helper()
	p.WaitInLog(t, fmt.Sprintf(`"error":%d`, number))
}

// WaitInLog waits for a text in the log, which comes through another pipe than answers do.
func (p *Server) WaitInLog(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(p.Stderr.String(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("no %s in the log", text)
			return
		}
	}
}
