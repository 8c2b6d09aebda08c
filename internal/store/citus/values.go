package citus

import (
	"strconv"

	"plantstore/internal/plant"
)

// Citus sends the rows of INSERT … VALUES to the shards that they belong to. If all belong to one shard, the insert is
// one statement there with a commit of one phase. The rows of INSERT … SELECT unnest are collected on the node that
// received them, and a key that exists is reported as an internal error.
//
// The values are literals. Citus writes a new statement for the shard anyway, and with parameters the nodes take
// a fifth more time.

// insertValues returns an insert of plants that ends with a suffix.
func insertValues(plants []*plant.Record, suffix string) string {
	text := []byte("INSERT INTO plants (store, id, name, tag) VALUES ")
	for i, r := range plants {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendLiteral(append(text, '('), r.Store)
		text = strconv.AppendInt(append(text, ",'"...), r.ID, 10)
		text = appendLiteral(append(text, "',"...), r.Name)
		if r.Tag == nil {
			text = append(text, ",NULL)"...)
		} else {
			text = append(appendLiteral(append(text, ','), *r.Tag), ')')
		}
	}
	return string(append(text, suffix...))
}

// appendLiteral appends a text as an SQL literal. It depends on standard_conforming_strings, which every session
// sets: then only the quote is special.
func appendLiteral(to []byte, text string) []byte {
	to = append(to, '\'')
	for i := range len(text) {
		if text[i] == '\'' {
			to = append(to, '\'')
		}
		to = append(to, text[i])
	}
	return append(to, '\'')
}
