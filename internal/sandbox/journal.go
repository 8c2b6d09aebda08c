package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"plantstore/internal/httpapi"
	"plantstore/internal/token"
)

const (
	maxEntries      = 200
	maxJournal      = 256 << 10 // bytes of a journal
	maxJournals     = 64 << 20  // bytes of all journals
	maxBody         = 8 << 10   // bytes of a body in an entry
	maxText         = 8 << 10   // bytes of the method, path, query and headers in an entry
	defaultRequests = 100
)

// mask hides credentials by their form. It knows no secret, so what it hides says nothing about one.
var mask token.Mask

// cutCredential matches what may be the beginning of a credential at the end of a text that was cut.
var cutCredential = regexp.MustCompile(`(plant_[0-9A-Za-z]*|eyJ[\w.-]*)$`)

func (s *Sandboxes) Record(store string, r *http.Request, e httpapi.Entry) {
	m := masker{left: maxText}
	e.Time, e.ID, e.Method = e.Time.UTC().Truncate(time.Millisecond), mask.Hide(e.ID), m.text(r.Method)
	e.Path, e.Query, e.Headers = m.text(r.URL.EscapedPath()), m.text(r.URL.RawQuery), m.headers(r)
	e.Body, e.Truncated = shorten(e.Body, maxBody)
	e.Truncated = e.Truncated || m.more
	if !utf8.ValidString(e.Body) {
		e.Body, e.Encoding = base64.StdEncoding.EncodeToString([]byte(e.Body)), "base64"
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.box(store)
	if !b.Expires.IsZero() && !b.Expires.After(time.Now()) {
		return
	}
	b.numbered++
	e.Number = b.numbered
	text, err := json.Marshal(e)
	if err != nil {
		return // it has no value that JSON can't have
	}
	b.journal = append(b.journal, text)
	b.journalBytes += int64(len(text))
	s.journal += int64(len(text))
	for len(b.journal) > maxEntries || b.journalBytes > maxJournal {
		s.truncate(b, len(b.journal)-1)
	}
	for s.journal > maxJournals {
		s.shrink()
	}
}

// truncate leaves the n newest entries of a journal. The caller holds mu.
func (s *Sandboxes) truncate(b *box, n int) {
	for _, text := range b.journal[:len(b.journal)-n] {
		b.journalBytes -= int64(len(text))
		s.journal -= int64(len(text))
	}
	b.journal = slices.Delete(b.journal, 0, len(b.journal)-n)
}

// shrink removes the older half of the largest journal. The caller holds mu.
func (s *Sandboxes) shrink() {
	var largest *box
	for _, b := range s.boxes {
		if largest == nil || b.journalBytes > largest.journalBytes {
			largest = b
		}
	}
	s.truncate(largest, len(largest.journal)/2)
}

// shorten returns the first bytes of a text, with credentials masked, and reports whether there are more.
func shorten(text string, most int) (first string, more bool) {
	if len(text) <= most {
		return mask.Hide(text), false
	}
	for n := 0; n < utf8.UTFMax && most > 0 && !utf8.RuneStart(text[most]); n++ {
		most-- // the cut would split a character
	}
	first = mask.Hide(text[:most])
	tail := max(0, len(first)-32) // a longer credential is masked already
	return first[:tail] + cutCredential.ReplaceAllString(first[tail:], "…"), true
}

// masker masks the texts of an entry, and shortens them to maxText together.
type masker struct {
	left int
	more bool // there was more
}

// text masks text that may be a part of a URL. It stays as it was sent, unless it has an escaped credential.
func (m *masker) text(sent string) string {
	if plain, err := url.QueryUnescape(sent); err == nil && plain != sent && mask.Hide(plain) != plain {
		sent = plain
	}
	first, more := shorten(sent, m.left)
	m.left, m.more = max(0, m.left-len(sent)-1), m.more || more // empty values are bounded too
	return first
}

// headers returns the headers in the order of their names, until nothing is left.
func (m *masker) headers(r *http.Request) http.Header {
	all := http.Header{"Host": {m.text(r.Host)}}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		lower, key := strings.ToLower(name), m.text(name)
		isSecret := slices.Contains([]string{"authorization", "cookie", "proxy-authorization"}, lower) ||
			strings.HasSuffix(lower, "-key") || strings.HasSuffix(lower, "-token")
		for _, value := range r.Header[name] {
			if m.left == 0 {
				m.more = true
				return all
			}
			text := m.text(value)
			if scheme, _, ok := strings.Cut(value, " "); ok && isSecret && (strings.EqualFold(scheme, "Bearer") ||
				strings.EqualFold(scheme, "Basic")) {
				text = scheme + " …"
			} else if isSecret {
				text = "…"
			}
			all[key] = append(all[key], text)
		}
	}
	return all
}

func (s *Sandboxes) Requests(c httpapi.Call) (any, error) {
	limit, err := c.QueryInteger(httpapi.ErrJournalQuery, "limit", 1, maxEntries, defaultRequests)
	if err != nil {
		return nil, err
	}
	before, err := c.QueryInteger(httpapi.ErrJournalQuery, "before", 1, math.MaxInt, math.MaxInt)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, page := s.box(c.Token.Store), []json.RawMessage{}
	first := b.numbered - int64(len(b.journal)) + 1
	for i, text := range slices.Backward(b.journal) {
		if first+int64(i) < int64(before) && len(page) < limit {
			page = append(page, text)
		}
	}
	return page, nil
}

func (s *Sandboxes) ClearRequests(c httpapi.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.truncate(s.box(c.Token.Store), 0)
	return nil, nil
}
