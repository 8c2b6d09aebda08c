package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
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
	entryOverhead   = 64        // bytes of memory besides the text
	defaultRequests = 100
)

func sizeInMemory(text json.RawMessage) int64 { return int64(len(text)) + entryOverhead }

// mask hides credentials by their form. It knows no secret, so what it hides says nothing about one.
var mask token.Mask

// cutCredential matches what may be the beginning of a credential at the end of a text that was cut.
var cutCredential = regexp.MustCompile(`(plant_[0-9A-Za-z]*|eyJ[\w.-]*)$`)

func (s *Sandboxes) Record(store string, r *http.Request, e httpapi.Entry) {
	left := maxText
	e.Time, e.ID, e.Method = e.Time.UTC().Truncate(time.Millisecond), mask.Hide(e.ID), maskText(r.Method, &left)
	e.Path, e.Query = maskText(r.URL.EscapedPath(), &left), maskText(r.URL.RawQuery, &left)
	e.Headers = maskHeaders(r, &left)
	if e.Body, e.Truncated = shorten(e.Body, maxBody); e.Truncated {
		whole := strings.TrimRightFunc(e.Body, func(r rune) bool { return r == utf8.RuneError })
		if len(e.Body)-len(whole) < utf8.UTFMax { // otherwise it is not text
			e.Body = whole
		}
	}
	e.Truncated = e.Truncated || left == 0
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
	b.journalBytes += sizeInMemory(text)
	s.journal += sizeInMemory(text)
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
		b.journalBytes -= sizeInMemory(text)
		s.journal -= sizeInMemory(text)
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
	first = mask.Hide(text[:most])
	tail := max(0, len(first)-32) // a longer credential is masked already
	return first[:tail] + cutCredential.ReplaceAllString(first[tail:], "…"), true
}

// maskText masks text that may be a part of a URL, and shortens it to the bytes that are left of maxText.
func maskText(text string, left *int) string {
	plain := strings.ReplaceAll(strings.ReplaceAll(text, "plant%5F", "plant_"), "plant%5f", "plant_")
	first, _ := shorten(plain, *left)
	*left = max(0, *left-len(text)-1) // so that many empty values are bounded too
	return first
}

// maskHeaders returns the headers in the order of their names, until nothing is left of maxText.
func maskHeaders(r *http.Request, left *int) http.Header {
	all := http.Header{"Host": {maskText(r.Host, left)}}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		lower, key := strings.ToLower(name), maskText(name, left)
		isSecret := slices.Contains([]string{"authorization", "cookie", "proxy-authorization"}, lower) ||
			strings.HasSuffix(lower, "-key") || strings.HasSuffix(lower, "-token")
		for _, value := range r.Header[name] {
			if *left == 0 {
				return all
			}
			text := maskText(value, left)
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
	limit, before := int64(defaultRequests), int64(math.MaxInt64)
	for name, to := range map[string]*int64{"limit": &limit, "before": &before} {
		values := c.Query[name]
		if len(values) == 0 {
			continue
		}
		n, err := strconv.ParseUint(values[0], 10, 63) // the largest number if it is larger
		if err != nil && !errors.Is(err, strconv.ErrRange) || n < 1 || len(values) > 1 {
			return nil, httpapi.Invalid(httpapi.ErrJournalQuery, "%s must be one integer of at least 1", name)
		}
		*to = int64(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, page := s.box(c.Token.Store), []json.RawMessage{}
	first := b.numbered - int64(len(b.journal)) + 1
	for i, text := range slices.Backward(b.journal) {
		if first+int64(i) < before && int64(len(page)) < limit {
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
