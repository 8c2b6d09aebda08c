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

// kind is what an attempt to create a plant is meant to meet.
type kind string

const (
	fresh kind = "fresh" // an id that nobody has used
	again kind = "again" // a plant that was answered 200, as it was
	wrong kind = "wrong" // a body that the description forbids, with an id of its own
	taken kind = "taken" // the id of a plant that was answered 200, with another name
)

type outcome string

const (
	unknown outcome = "UNKNOWN" // told so, or told nothing
	acked   outcome = "ACK"     // 200
	refused outcome = "REFUSED" // told that nothing was stored
)

// attempt is one request, and what became of it as far as the ledger knows.
type attempt struct {
	n    int64 // its number in the ledger
	kind kind
	id   int64
	body string // as it was sent

	outcome outcome
	told    string // the body of a 200, the number of another answer, or none
}

// book is the file: a line before each attempt and one after it.
//
//	INTENT n kind id body
//	ACK n body | REFUSED n number | UNKNOWN n number-or-none
//	VERIFIED
type book struct {
	file *os.File

	attempts map[int64]*attempt // as they were when the file was opened, and those of verify
	verified map[int64]bool     // those before the last VERIFIED
	last     int64              // the highest number

	mu      sync.Mutex
	pending *group // lines that wait for the next sync
	syncing bool
}

// group is lines that are synced together.
type group struct {
	text bytes.Buffer
	done chan struct{}
	err  error
}

const none = "none"

func open(path string) (*book, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	b := &book{file: f, attempts: map[int64]*attempt{}, verified: map[int64]bool{}}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	if err := f.Truncate(int64(len(whole))); err != nil { // a line that broke off was never used
		return nil, err
	}
	for line := range strings.Lines(string(whole)) {
		if err := b.read(strings.TrimSuffix(line, "\n")); err != nil {
			return nil, fmt.Errorf("%s: %w: %.200q", path, err, line)
		}
	}
	return b, nil
}

func (b *book) read(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "INTENT":
		a := &attempt{outcome: unknown, told: none}
		if _, err := fmt.Sscanf(rest, "%d %s %d", &a.n, &a.kind, &a.id); err != nil {
			return err
		}
		a.body = strings.SplitN(rest, " ", 4)[3]
		b.attempts[a.n] = a
		b.last = max(b.last, a.n)
		return nil
	case "VERIFIED":
		for n := range b.attempts {
			b.verified[n] = true
		}
		return nil
	}
	var n int64
	number, told, _ := strings.Cut(rest, " ")
	if _, err := fmt.Sscan(number, &n); err != nil {
		return err
	}
	a := b.attempts[n]
	if a == nil {
		return errors.New("an outcome without an intent")
	}
	switch a.outcome, a.told = outcome(word), told; a.outcome {
	case acked, refused, unknown:
		return nil
	}
	return errors.New("expected INTENT, ACK, REFUSED, UNKNOWN or VERIFIED")
}

func (b *book) intend(a *attempt) error {
	return b.write(fmt.Sprintf("INTENT %d %s %d %s\n", a.n, a.kind, a.id, a.body))
}

func (b *book) conclude(a *attempt) error {
	return b.write(fmt.Sprintf("%s %d %s\n", a.outcome, a.n, a.told))
}

// write returns when the line is on disk. Lines that come while others are synced share the next sync.
func (b *book) write(line string) error {
	b.mu.Lock()
	if b.pending == nil {
		b.pending = &group{done: make(chan struct{})}
	}
	mine := b.pending
	mine.text.WriteString(line)
	if !b.syncing {
		b.syncing = true
		go b.sync()
	}
	b.mu.Unlock()
	<-mine.done
	return mine.err
}

func (b *book) sync() {
	for {
		b.mu.Lock()
		g := b.pending
		b.pending = nil
		b.syncing = g != nil
		b.mu.Unlock()
		if g == nil {
			return
		}
		if _, g.err = b.file.Write(g.text.Bytes()); g.err == nil {
			g.err = b.file.Sync()
		}
		close(g.done)
	}
}

func (b *book) close() error { return b.file.Close() }
