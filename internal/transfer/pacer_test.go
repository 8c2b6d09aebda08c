package transfer

import (
	"bytes"
	"testing"
	"time"
)

// A writer rests three times as long as it works, but never for longer than maxRest.
func TestRests(t *testing.T) {
	var written bytes.Buffer
	w, start, want := &pacer{Writer: &written, rest: 3}, time.Now(), time.Duration(0)
	for range 5 {
		w.Write([]byte("page"))
		began := time.Now()
		time.Sleep(2 * workTime) // the work
		worked := time.Since(began)
		want += worked + min(3*worked, maxRest)
	}
	w.Write(nil)
	if took := time.Since(start); took < want || written.String() != "pagepagepagepagepage" {
		t.Errorf("wrote %q in %v, want at least %v", &written, took, want)
	}
}
