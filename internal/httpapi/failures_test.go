package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

// outcome is a service whose creates all end in one way.
type outcome struct {
	err   error
	panic any
	takes time.Duration
}

func (o outcome) Create(context.Context, plant.Record) (plant.Outcome, error) {
	time.Sleep(o.takes)
	if o.panic != nil {
		panic(o.panic)
	}
	return plant.Created, o.err
}

func create(o outcome, body io.Reader) (*httptest.ResponseRecorder, string) {
	a, log := newAPI(Config{MaxBody: 1000}, Dependencies{Creator: o})
	w := send(a, "POST", "/plants", body)
	return w, log.String()
}

// What goes wrong behind the handler has the number that the catalogue gives it, tells whether to
// retry, and shows nothing of the inside.
func TestFaults(t *testing.T) {
	const inside = "SELECT secret FROM /var/lib"
	for _, test := range []struct {
		err    error
		number int
	}{
		{store.ErrBusy, 50301},
		{store.ErrUnknown, 50302},
		{store.ErrUnavailable, 50303},
		{store.ErrFull, 50304},
		{store.ErrStopping, 50305},
		{context.DeadlineExceeded, 50303},
		{fmt.Errorf("%w: %w", store.ErrUnknown, store.ErrFull), 50302},
		{fmt.Errorf("%w: %w", store.ErrUnknown, store.ErrUnavailable), 50302},
		{errors.New("something else"), 50001},
	} {
		w, log := create(outcome{err: fmt.Errorf("%s: %w", inside, test.err)}, strings.NewReader(`{"id":1,"name":"x"}`))
		if w.Code != test.number/100 || !strings.HasPrefix(w.Body.String(), fmt.Sprintf(`{"error":%d,`, test.number)) {
			t.Errorf("%v: %d %s, want error %d", test.err, w.Code, w.Body, test.number)
		}
		if (w.Code == 503) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("%v: %d with Retry-After %q", test.err, w.Code, w.Header().Get("Retry-After"))
		}
		if strings.Contains(w.Body.String(), "secret") || !strings.Contains(log, "secret") {
			t.Errorf("%v: what happened inside must be in the log and not in the answer:\n%s\n%s", test.err, w.Body, log)
		}
	}
}

func TestPanic(t *testing.T) {
	w, log := create(outcome{panic: "a bug"}, strings.NewReader(`{"id":1,"name":"x"}`))
	if w.Code != 500 || !strings.HasPrefix(w.Body.String(), `{"error":50001,`) || strings.Contains(w.Body.String(), "bug") {
		t.Errorf("a panic: %d %s", w.Code, w.Body)
	}
	if !strings.Contains(log, "a bug") || !strings.Contains(log, "goroutine") || strings.Count(log, "\n") != 1 {
		t.Errorf("a panic in the log:\n%s", log)
	}
}

// body breaks in the middle.
type body struct{ err error }

func (b body) Read(p []byte) (int, error) { return copy(p, "{"), b.err }

func TestBodyBreaks(t *testing.T) {
	for err, number := range map[error]int{os.ErrDeadlineExceeded: 40023, io.ErrUnexpectedEOF: 40022} {
		w, _ := create(outcome{}, body{err})
		if w.Code != 400 || !strings.HasPrefix(w.Body.String(), fmt.Sprintf(`{"error":%d,`, number)) {
			t.Errorf("%v: %d %s, want error %d", err, w.Code, w.Body, number)
		}
	}
}

func TestSlowRequestsAreLogged(t *testing.T) {
	for takes, want := range map[time.Duration]bool{0: false, slowRequest - 1: false, slowRequest: true} {
		synctest.Test(t, func(t *testing.T) { // only the create takes time
			w, log := create(outcome{takes: takes}, strings.NewReader(`{"id":1,"name":"x"}`))
			if w.Code != http.StatusOK || (log != "") != want {
				t.Errorf("a create of %v: %d, log %q", takes, w.Code, log)
			}
		})
	}
}

// Every number stands once in the catalogue, under its own status.
func TestCatalogue(t *testing.T) {
	seen := map[int32]bool{}
	for _, f := range Catalogue() {
		if seen[f.Number] || http.StatusText(f.Status()) == "" || f.Meaning == "" || f.Remedy == "" {
			t.Errorf("the line %+v", f)
		}
		seen[f.Number] = true
	}
	for reason := plant.Empty; reason <= plant.ZeroCharacter; reason++ {
		if f, _ := classify(&plant.Invalid{Reason: reason}); f.Status() != 400 {
			t.Errorf("reason %d of the decoder has no line", reason)
		}
	}
}
