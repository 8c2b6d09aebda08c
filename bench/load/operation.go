//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"plantstore/bench/measure"
)

// operation is a kind of request and what its response must be.
type operation struct {
	request message
	status  int
	expect  message // what the start of the response must contain; empty: anything
	body    int     // bytes of the body of the first response; with an expectation, all have as many
}

// creates is the operation that stores plants.
func creates(o options) *operation {
	body := fmt.Sprintf(`{"%s":{id},"name":"%s","tag":"%s"}`, o.idName, o.name, measure.Tag)
	return &operation{request: request(o, http.MethodPost, o.path, body), status: http.StatusOK}
}

// others is the operation that reads or edits stored plants, or nil.
func others(o options) (*operation, error) {
	op := &operation{status: http.StatusOK, expect: newMessage(o.expect)}
	body := ""
	switch o.method {
	case "":
		return nil, nil
	case http.MethodGet:
	case http.MethodPut:
		body = fmt.Sprintf(`{"name":"%s","tag":"%s"}`, measure.Renamed(o.name), measure.Tag)
	case http.MethodDelete:
		op.status = http.StatusNoContent
	default:
		return nil, fmt.Errorf("-method must be GET, PUT or DELETE, but is %q", o.method)
	}
	if o.stored < 1 {
		return nil, fmt.Errorf("-stored must be at least 1 for %s requests", o.method)
	}
	op.request = request(o, o.method, o.target, body)
	return op, nil
}

func request(o options, method, path, body string) message {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n", method, path, o.address, o.token)
	if body != "" {
		head += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(newMessage(body).text))
	}
	return newMessage(head + "\r\n" + body)
}

// problem returns what is wrong with a response whose status is the right one, or "".
func (op *operation) problem(c *client) string {
	if len(op.expect.text) == 0 {
		return ""
	}
	op.expect.set(c.id)
	if !bytes.Contains(c.response, op.expect.text) {
		return fmt.Sprintf("the response does not contain %s: %s", op.expect.text, c.response)
	}
	if op.body == 0 {
		op.body = c.body
	}
	if c.body != op.body {
		return fmt.Sprintf("the body has %d bytes, and that of another response has %d: %s", c.body, op.body, c.response)
	}
	return ""
}

// message is a text with places for an id.
type message struct {
	text  []byte
	slots []slot
}

// slot is a place for the last digits of an id, or of the one below it.
type slot struct {
	at, digits int
	below      int64
}

// Placeholders of the id, of the one below it, and of its last 15 digits, because ids in PocketBase are that long.
var placeholders = []struct {
	name string
	slot
}{{"{id}", slot{digits: 16}}, {"{below}", slot{digits: 16, below: 1}}, {"{record}", slot{digits: 15}}}

func newMessage(template string) (m message) {
next:
	for template != "" {
		for _, p := range placeholders {
			if rest, ok := strings.CutPrefix(template, p.name); ok {
				m.slots = append(m.slots, slot{len(m.text), p.digits, p.below})
				m.text = append(m.text, strings.Repeat("0", p.digits)...)
				template = rest
				continue next
			}
		}
		m.text = append(m.text, template[0])
		template = template[1:]
	}
	return m
}

// set writes an id into the message.
func (m message) set(id int64) {
	for _, s := range m.slots {
		n := uint64(id - s.below)
		for i := s.at + s.digits - 1; i >= s.at; i-- {
			m.text[i] = '0' + byte(n%10)
			n /= 10
		}
	}
}
