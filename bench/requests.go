package main

import (
	"fmt"
	"strconv"

	"plantstore/bench/measure"
	"plantstore/internal/plant"
)

// api is how a contender is asked, in the placeholders of the load process.
type api struct {
	create string // path
	idName string // JSON member of a create that contains the id
	get    string // path, also of edits
	found  string // in the response to a get or a replace
	list   string // path, with a verb for the number of plants
	first  string // in the response to a list
}

var (
	productAPI = api{
		create: "/plants", idName: "id", get: "/plants/{id}", found: `{"id":{id},`,
		list: "/plants?limit=%d&after={below}", first: `[{"id":{id},`,
	}
	// A list starts at a record and not at the number of a page, so that PocketBase does not count to it, and its
	// total is not counted either.
	pocketBaseAPI = api{
		create: recordsPath, idName: "plant_id", get: recordsPath + "/{record}", found: `"id":"{record}",`,
		list:  recordsPath + "?perPage=%d&skipTotal=1&sort=id&filter=id%%3E%%3D%%27{record}%%27",
		first: `"id":"{record}",`,
	}
)

const recordsPath = "/api/collections/plants/records"

// loadArgs are the flags of the load process for a row.
func (r *row) loadArgs(a api, stored int64) []string {
	args := []string{
		"-path", a.create, "-id-name", a.idName, "-clients", strconv.Itoa(r.conns), "-creators", strconv.Itoa(r.creators),
		"-name-bytes", strconv.Itoa(r.nameBytes), fmt.Sprintf("-scattered=%v", r.scattered),
	}
	if r.store != nil {
		stored = r.store.plants
		args = append(args, "-spread", strconv.FormatInt(stored, 10))
	}
	send := func(method, target, expect string, more ...string) []string {
		return append(append(args, "-method", method, "-target", target, "-expect", expect), more...)
	}
	all := strconv.FormatInt(stored, 10)
	switch r.request {
	case get:
		return send("GET", a.get, a.found, "-stored", all)
	case mixed:
		return send("GET", a.get, a.found, "-stored", all, "-create-share", fmt.Sprint(createShare))
	case list: // every page is full
		starts := strconv.FormatInt(stored-int64(r.limit), 10)
		return send("GET", fmt.Sprintf(a.list, r.limit), a.first, "-stored", starts)
	case replace:
		return send("PUT", a.get, a.found, "-stored", all)
	case remove:
		return send("DELETE", a.get, "", "-stored", all)
	}
	return args
}

// checkBodies compares the bytes of the responses with those of the plants that they must contain. PocketBase adds
// members.
func (r *row) checkBodies(report measure.Report) error {
	tag := measure.Tag
	one := plant.Plant{ID: measure.ID(0, false), Content: plant.Content{Name: measure.Name(r.nameBytes), Tag: &tag}}
	want := int64(len(one.AppendJSON(nil)))
	switch r.request {
	case list:
		want = int64(r.limit)*(want+1) + 1 // [a,b]
	case get, replace:
	default:
		return nil
	}
	want *= report.Count
	if report.Body < want || report.Body > want && r.kind != pocketBase {
		return fault(fmt.Sprintf("%d responses have %d bytes; their plants have %d", report.Count, report.Body, want))
	}
	return nil
}

// checkStored compares how many plants have a name after a run with how many must have it.
func (r *row) checkStored(report measure.Report, stored int64, count func(name string) (int64, error)) error {
	name, want := measure.Name(r.nameBytes), report.Created
	switch r.request {
	case get, list, mixed:
		want += stored
	case replace:
		name, want = measure.Renamed(name), report.OK
	case remove:
		want = stored - report.OK
	}
	found, err := count(name)
	if err != nil {
		return err
	}
	if found != want {
		return fault(fmt.Sprintf("the database contains %d plants named %.10s…; by the responses it must be %d",
			found, name, want))
	}
	return nil
}
