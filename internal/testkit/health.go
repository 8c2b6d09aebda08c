package testkit

import (
	"io"
	"testing"
	"time"
)

// Patience is for what the service has promised to do within a time. The machine itself may stop for a second or two:
// where little was asked in that time, more is waited.
type Patience struct {
	within time.Duration
	start  time.Time
	asked  int
}

func NewPatience(within time.Duration) *Patience { return &Patience{within: within, start: time.Now()} }

// Over is asked after each question, and reports whether that was the last.
func (p *Patience) Over() bool {
	p.asked++
	took := time.Since(p.start)
	return p.within == 0 || took > p.within && (p.asked > 20 || took > p.within+5*time.Second)
}

// WaitReady waits until /readyz says yes or no, and returns its words.
func (p *Server) WaitReady(t *testing.T, want bool, within time.Duration) string {
	t.Helper()
	for patience := NewPatience(within); ; time.Sleep(20 * time.Millisecond) {
		status, words := p.Health(t, "/readyz")
		if (status == 200) == want {
			return words
		}
		if patience.Over() {
			t.Fatalf("/readyz is %d %q after %v, want ready: %v", status, words, within, want)
		}
	}
}

func (p *Server) Health(t *testing.T, path string) (int, string) {
	t.Helper()
	response, err := HTTP.Get(p.Ops + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}
