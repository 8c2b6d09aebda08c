package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// kind is what an attempt to create or change a plant is meant to test.
type kind string

const (
	fresh kind = "fresh" // an id that was never used
	again kind = "again" // an acknowledged plant, unchanged
	wrong kind = "wrong" // a body that the description forbids, with an id of its own
	taken kind = "taken" // the id of an acknowledged plant, with another name

	edit kind = "edit" // a replace of an acknowledged plant
	drop kind = "drop" // a remove of an acknowledged plant
	gone kind = "gone" // a repeated remove, which may find that the plant is removed
)

// outcome is what the response to an attempt promises.
type outcome string

const (
	unknown outcome = "UNKNOWN" // the response says so, or there is none
	acked   outcome = "ACK"     // 200
	refused outcome = "REFUSED" // the response says that nothing was stored
)

// none stands for the response of an attempt without one.
const none = "none"

// attempt is one request and its outcome.
type attempt struct {
	n    int64 // its number in the ledger
	kind kind
	id   int64
	body string // as it was sent

	outcome  outcome
	response string // the body of a 200, the status 204, the error number of another response, or none
}

// ledger is the file: one line before each attempt and one after it.
//
//	INTENT n kind id body
//	ACK n body | REFUSED n number | UNKNOWN n number-or-none
//	VERIFIED
type ledger struct {
	file *os.File

	attempts map[int64]*attempt // those in the file when it was opened, and those of verify
	verified map[int64]bool     // those before the last VERIFIED
	last     int64              // the highest number

	mu      sync.Mutex
	pending *group // lines for the next sync
	syncing bool
}

// group is lines that are synced together.
type group struct {
	text bytes.Buffer
	done chan struct{}
	err  error
}

func open(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	l := &ledger{file: f, attempts: map[int64]*attempt{}, verified: map[int64]bool{}}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	complete := text[:bytes.LastIndexByte(text, '\n')+1]
	if err := f.Truncate(int64(len(complete))); err != nil { // An incomplete line was never synced.
		return nil, err
	}
	for line := range strings.Lines(string(complete)) {
		if err := l.read(strings.TrimSuffix(line, "\n")); err != nil {
			return nil, fmt.Errorf("%s: %w: %.200q", path, err, line)
		}
	}
	return l, nil
}

func (l *ledger) read(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "INTENT":
		a := &attempt{outcome: unknown, response: none}
		if _, err := fmt.Sscanf(rest, "%d %s %d", &a.n, &a.kind, &a.id); err != nil {
			return err
		}
		fields := strings.SplitN(rest, " ", 4)
		if len(fields) < 4 {
			return errors.New("an intent without a body")
		}
		a.body = fields[3]
		l.attempts[a.n] = a
		l.last = max(l.last, a.n)
		return nil
	case "VERIFIED":
		for n := range l.attempts {
			l.verified[n] = true
		}
		return nil
	case string(acked), string(refused), string(unknown):
		var n int64
		number, response, _ := strings.Cut(rest, " ")
		if _, err := fmt.Sscan(number, &n); err != nil {
			return err
		}
		a := l.attempts[n]
		if a == nil {
			return errors.New("an outcome without an intent")
		}
		a.outcome, a.response = outcome(word), response
		return nil
	}
	return errors.New("expected INTENT, ACK, REFUSED, UNKNOWN or VERIFIED")
}

func (l *ledger) writeIntent(a *attempt) error {
	return l.write(fmt.Sprintf("INTENT %d %s %d %s\n", a.n, a.kind, a.id, a.body))
}

func (l *ledger) writeOutcome(a *attempt) error {
	return l.write(fmt.Sprintf("%s %d %s\n", a.outcome, a.n, a.response))
}

// write returns when the text is on disk. Concurrent writers share a sync.
func (l *ledger) write(text string) error {
	l.mu.Lock()
	if l.pending == nil {
		l.pending = &group{done: make(chan struct{})}
	}
	mine := l.pending
	mine.text.WriteString(text)
	if !l.syncing {
		l.syncing = true
		go l.sync()
	}
	l.mu.Unlock()
	<-mine.done
	return mine.err
}

func (l *ledger) sync() {
	for {
		l.mu.Lock()
		g := l.pending
		l.pending = nil
		l.syncing = g != nil
		l.mu.Unlock()
		if g == nil {
			return
		}
		if _, g.err = l.file.Write(g.text.Bytes()); g.err == nil {
			g.err = l.file.Sync()
		}
		close(g.done)
	}
}

func (l *ledger) close() error { return l.file.Close() }
