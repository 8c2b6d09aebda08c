package ledger

import (
	"encoding/json"
	"fmt"
	"strings"
)

// kind is what an attempt is meant to test.
type kind string

const (
	fresh kind = "fresh" // an id that was never used
	again kind = "again" // an acknowledged plant, unchanged
	wrong kind = "wrong" // a body that the description forbids, with an id of its own
	taken kind = "taken" // the id of an acknowledged plant, with another name
	read  kind = "read"  // a get of an acknowledged plant

	edit kind = "edit" // a replace of an acknowledged plant
	drop kind = "drop" // a remove of an acknowledged plant
	gone kind = "gone" // a repeated remove, which may find that the plant is removed
)

// attempt is one request and its response.
type attempt struct {
	kind kind
	id   int64
	body string // as it was sent; of a read, the plant that it must return

	number   int    // None until there is a response
	received string // the body of a response with status 200; otherwise what is wrong with the response
}

// outcome is what the response to an attempt promises.
type outcome int

const (
	unknown outcome = iota // the response says so, or there is none
	acked
	refused // nothing was stored
)

// outcome follows from the number. The numbers are those of docs/errors.md.
func (a *attempt) outcome() outcome {
	switch n := a.number; {
	case n == 200, n == 204:
		return acked
	case n/100 == 400, n/100 == 429, n == notFound, n == 50301, n == 50303, n == 50304, n == 50305, n == Unreachable:
		return refused
	}
	return unknown
}

const notFound = 40401

// compose is the attempt of a number: mostly a new plant, sometimes one that must be refused, or an acknowledged one
// that is repeated, read or, with edits, changed.
func compose(n int64, stored *attempt, edits bool) *attempt {
	// The ids are scattered, so that a batch touches pages all over the database file.
	a := &attempt{kind: fresh, id: int64(uint64(n) * 0x9E3779B97F4A7C15)}
	name := fmt.Sprintf("plant %d, \"grün\" 🌱", n)
	if n%40 == 0 {
		name += strings.Repeat(" and more", 1000) // more than a page of the database
	}
	var tag *string
	if n%3 > 0 {
		tag = new(strings.Repeat(fmt.Sprintf("tag\n%d", n), int(n%3)-1)) // It is empty for every third plant.
	}
	a.body = encode(a.id, name, tag)
	switch {
	case n%10 == 3:
		a.kind = wrong
		a.body = []string{
			fmt.Sprintf(`{"id":%d,"name":"x","tag":null}`, a.id),
			fmt.Sprintf(`{"id":%d}`, a.id),
			fmt.Sprintf(`{"id":%d,"name":"x","name":"x"}`, a.id),
			fmt.Sprintf(`{"id":%d,"name":"x"`, a.id),
		}[n/10%4]
	case stored == nil:
	case n%10 == 6:
		a.kind, a.id, a.body = again, stored.id, stored.body
	case n%10 == 1:
		a.kind, a.id, a.body = read, stored.id, stored.body
	case n%20 == 19:
		a.kind, a.id = taken, stored.id
		a.body = encode(a.id, name, tag)
	case n%10 == 5 && edits:
		a.kind, a.id = edit, stored.id
		a.body = encode(a.id, name, tag)
	case n%20 == 9 && edits:
		a.kind, a.id, a.body = drop, stored.id, stored.body
	}
	return a
}

// encode writes a plant as the service does, so that they can be compared byte by byte.
func encode(id int64, name string, tag *string) string {
	text := fmt.Sprintf(`{"id":%d,"name":%s`, id, quote(name))
	if tag != nil {
		text += `,"tag":` + quote(*tag)
	}
	return text + "}"
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(quoted)
}

// request returns what is sent for an attempt.
func (a *attempt) request() (method, path, body string) {
	path = fmt.Sprintf("/plants/%d", a.id)
	switch a.kind {
	case read:
		return "GET", path, ""
	case edit:
		return "PUT", path, a.body
	case drop, gone:
		return "DELETE", path, ""
	}
	return "POST", "/plants", a.body
}

// acknowledgement is the body of the response to an attempt that succeeds.
func (a *attempt) acknowledgement() string {
	switch a.kind {
	case fresh, again:
		return strings.Replace(a.body, fmt.Sprintf(`"id":%d,`, a.id), "", 1)
	case edit, read:
		return a.body
	}
	return ""
}

// problem returns what is impossible about a response to its request, or "".
func (a *attempt) problem() string {
	ok := true
	switch a.outcome() {
	case acked:
		removes := a.kind == drop || a.kind == gone
		ok = a.received == a.acknowledgement() && a.kind != wrong && a.kind != taken && removes == (a.number == 204)
	case refused:
		ok = a.number/10000 != 4 || a.number/100 == 429 || a.kind == taken && a.number == 40009 ||
			a.kind == wrong && a.number/100 == 400 && a.number != 40009 || a.kind == gone && a.number == notFound
	case unknown:
		ok = a.number == None || a.number == 50302 && a.kind != read
	}
	if a.outcome() != acked && a.received != "" {
		ok = false
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("a %s plant %d got %d %.200s", a.kind, a.id, a.number, a.received)
}
